"""Message ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.record.hosts import encode_host
from orbitmq.record.message_id import decode_message_id, encode_message_id

KNOWN = "C0A8010A00002A9F000000000001E240"


def test_the_known_id_is_written_and_read() -> None:
    assert encode_message_id(encode_host("192.168.1.10", 10911), 123456) == KNOWN
    assert decode_message_id(KNOWN) == ("192.168.1.10", 10911, 123456)
    assert decode_message_id(KNOWN.lower()) == ("192.168.1.10", 10911, 123456)


@given(st.ip_addresses().map(str), st.integers(0, 65535), st.integers(0, 2**63 - 1))
def test_ids_survive_a_round_trip(address: str, port: int, physical_offset: int) -> None:
    message_id = encode_message_id(encode_host(address, port), physical_offset)

    assert len(message_id) in (32, 56)
    assert decode_message_id(message_id) == (address, port, physical_offset)


@pytest.mark.parametrize(
    "message_id",
    [
        *("", KNOWN[:-1], KNOWN[:-2], KNOWN + "00", KNOWN[:-1] + "G", KNOWN + "\n"),
        *(f"{KNOWN[:2]} {KNOWN[2:]}", "é" * 32, "٣" * 32),
    ],
)
def test_other_texts_are_refused(message_id: str) -> None:
    with pytest.raises(ProtocolError, match="is not a message id"):
        decode_message_id(message_id)
