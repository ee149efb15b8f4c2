"""Handing messages back: names on the wire."""

from __future__ import annotations

import pytest

from orbitmq.errors import ProtocolError
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.retries import BROKER_CHOOSES, TO_DEAD_LETTERS, SendBack

REQUIRED = {"offset": "1000", "group": "g", "delayLevel": "0"}
FIELDS = {
    **REQUIRED,
    "originMsgId": "id",
    "originTopic": "T",
    "unitMode": "false",
    "maxReconsumeTimes": "16",
    "bname": "broker-a",
}


def test_a_message_is_handed_back_under_javas_field_names() -> None:
    header = SendBack(
        physical_offset=Long(1000),
        group="g",
        delay_level=BROKER_CHOOSES,
        original_message_id="id",
        original_topic="T",
        retries_max=16,
        broker_name="broker-a",
    )

    assert SendBack.CODE == 36
    assert header.encode() == FIELDS
    assert SendBack.decode(FIELDS) == header


def test_old_consumers_name_no_limit() -> None:
    header = SendBack.decode({**REQUIRED, "delayLevel": "-1"})

    assert header.delay_level == TO_DEAD_LETTERS
    assert (header.retries_max, header.original_topic, header.unit_mode) == (None, None, False)


@pytest.mark.parametrize("missing", REQUIRED)
def test_a_message_cannot_be_handed_back_without_a_required_field(missing: str) -> None:
    fields = {name: text for name, text in FIELDS.items() if name != missing}

    with pytest.raises(ProtocolError, match=f"field '{missing}' of SendBack is missing"):
        SendBack.decode(fields)
