"""Staged rows: how a row is staged, and how it is restored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.exactly_once.staged_rows import (
    RowName,
    check_write_id,
    name_of,
    restored,
    staged,
)
from orbitmq.errors import MessageError, StoreDamagedError
from orbitmq.model.names import STAGING_TOPIC
from orbitmq.record.decode import StoredMessage
from orbitmq.record.properties import decode_properties, encode_properties
from orbitmq.store.log.draft import Draft

WRITE_ID = "0123456789abcdef" * 2
TEXTS = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1)


def stored(draft: Draft) -> StoredMessage:
    return StoredMessage(
        size=0,
        queue_id=draft.queue_id,
        flag=draft.flag,
        queue_offset=0,
        physical_offset=4711,
        system_flag=draft.system_flag,
        born_ms=draft.born_ms,
        born_host_bytes=draft.born_host,
        store_ms=0,
        store_host_bytes=b"",
        reconsume_times=draft.reconsume_times,
        prepared_offset=0,
        stored_body=draft.body,
        topic=draft.topic,
        properties_bytes=draft.properties,
    )


@given(
    body=st.binary(),
    properties=st.dictionaries(TEXTS, TEXTS),
    queue_id=st.integers(0, 2**31 - 1),
    sequence=st.integers(0, 10**18 - 1),
    ends_open=st.booleans(),
)
def test_a_row_is_restored_as_it_was_with_its_name_added(
    body: bytes,
    properties: dict[str, str],
    queue_id: int,
    sequence: int,
    ends_open: bool,  # noqa: FBT001 - by name
) -> None:
    encoded = encode_properties(properties)
    draft = Draft(
        topic="orders",
        queue_id=queue_id,
        body=body,
        properties=encoded[:-1] if ends_open else encoded,
        flag=3,
        system_flag=1,
        born_ms=17,
        reconsume_times=2,
    )
    name = RowName(WRITE_ID, sequence)

    kept = staged(draft, name)
    back = restored(stored(kept))

    assert (kept.topic, kept.queue_id) == (STAGING_TOPIC, 0)
    assert name_of(kept.properties) == name_of(back.properties) == name
    assert (back.topic, back.queue_id, back.body) == ("orders", queue_id, body)
    assert (back.flag, back.system_flag, back.born_ms, back.reconsume_times) == (3, 1, 17, 2)
    assert decode_properties(back.properties) == properties | {
        "ORBIT_ROW": f"{WRITE_ID}/{sequence}"
    }


def test_a_row_that_was_read_from_a_topic_gets_a_name_of_its_own() -> None:
    first = restored(stored(staged(Draft(topic="a", body=b""), RowName(WRITE_ID, 1))))
    name = RowName("f" * 32, 2)

    again = restored(stored(staged(Draft(topic="b", body=b"", properties=first.properties), name)))

    assert again.topic == "b"
    assert name_of(again.properties) == name


@pytest.mark.parametrize(
    "value", ["", "no number", f"{WRITE_ID}/", f"{WRITE_ID}/-1", "x/" + "9" * 30]
)
def test_a_message_without_a_name_is_not_a_row(value: str) -> None:
    assert name_of(f"ORBIT_ROW\x01{value}\x02".encode()) is None


def test_a_row_with_too_many_properties_is_refused_before_it_is_staged() -> None:
    draft = Draft(topic="orders", body=b"", properties=b"a\x01" + b"x" * 32_760 + b"\x02")

    with pytest.raises(MessageError, match="with the row's name; 32767 fit"):
        staged(draft, RowName(WRITE_ID, 0))


@pytest.mark.parametrize("write_id", ["", "0" * 31, "0" * 33, "G" * 32, "0" * 31 + "\n"])
def test_a_write_id_has_32_digits(write_id: str) -> None:
    with pytest.raises(MessageError, match="it has 32 hexadecimal digits"):
        check_write_id(write_id)


def test_a_staged_row_without_a_valid_queue_is_damage() -> None:
    with pytest.raises(StoreDamagedError, match="at 4711 names no valid queue"):
        restored(stored(Draft(topic=STAGING_TOPIC, body=b"", properties=b"ORBIT_ROW\x01x/1\x02")))
