"""The compiled writer of batches writes the same bytes as the plain one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import MessageError
from orbitmq.record import encode
from orbitmq.record.batch import BatchedMessage
from orbitmq.record.layout import BORN_HOST_V6, STORE_HOST_V6
from tests.unit.record import test_batch_records as plain_tests
from tests.unit.record.test_batch_records import HOST_V4, HOST_V6, MESSAGES, arguments

# Loaded as a value without a type: mypy reads the source, this is what was compiled from it.
native: Any = pytest.importorskip(
    "orbitmq.record.compiled.batch_records_cython",
    reason="not compiled; run: pip install --editable .",
    exc_type=ImportError,
)

_numbers = st.integers(-(2**63) - 1, 2**63)
_shorts = st.integers(-(2**31) - 1, 2**31)


def _outcome(
    form: Any, room_bytes: int, at: int, named: dict[str, Any]
) -> tuple[bytes | None, bytes]:
    """The result, None if the batch is refused; and the buffer afterwards."""
    room = bytearray(room_bytes)
    try:
        returned = form.encode_batch_records(room, at, **named)
    except (MessageError, ValueError):
        # If there are several reasons, the forms may name different ones.
        returned = None
    return returned, bytes(room)


@pytest.mark.parametrize("topic", [b"orders", b"t" * 128, b"t" * 255])
@pytest.mark.parametrize("system_flag", [0, BORN_HOST_V6, STORE_HOST_V6])
def test_a_batch_is_written_alike(topic: bytes, system_flag: int) -> None:
    named = arguments(
        MESSAGES,
        topic=topic,
        system_flag=system_flag,
        born_host=HOST_V6 if system_flag & BORN_HOST_V6 else HOST_V4,
        store_host=HOST_V6 if system_flag & STORE_HOST_V6 else HOST_V4,
    )
    room_bytes = named["records_bytes"] + 10

    returned, room = _outcome(native, room_bytes, 4, named)

    assert isinstance(returned, bytes)
    assert (returned, room) == _outcome(encode, room_bytes, 4, named)


@given(
    st.lists(
        st.builds(
            BatchedMessage,
            st.integers(-(2**31), 2**31 - 1),
            st.binary(max_size=80),
            st.binary(max_size=40),
        ),
        max_size=5,
    ),
    st.binary(max_size=20),
    st.integers(-2, 2),
    st.fixed_dictionaries({}, optional={
        "queue_id": _shorts, "queue_offset": _numbers, "physical_offset": st.one_of(st.integers(0, 2**63), st.just(2**63 - 100)),
        "system_flag": st.sampled_from([0, 16, 32, 48, 64]), "born_ms": _numbers,
        "store_ms": _numbers, "reconsume_times": _shorts, "topic": st.binary(max_size=260),
        "born_host": st.sampled_from([HOST_V4, HOST_V6, b""]),
    }),
)  # fmt: skip
def test_any_batch_is_written_or_refused_alike(
    messages: list[BatchedMessage], broker_properties: bytes, more: int, changes: dict[str, Any]
) -> None:
    named = arguments(messages, broker_properties=broker_properties, **changes)
    named["records_bytes"] += more
    room_bytes = named["records_bytes"] + 5

    assert _outcome(native, max(room_bytes, 0), 2, named) == _outcome(
        encode, max(room_bytes, 0), 2, named
    )


@pytest.mark.parametrize("seed", range(4))
def test_mutated_batches_are_written_or_refused_alike(seed: int) -> None:
    chance = random.Random(seed)
    written = 0
    for _ in range(2000):
        named = arguments(chance.choices(MESSAGES, k=chance.randrange(1, 4)))
        content = bytearray(named["messages"])
        for _ in range(chance.randrange(3)):
            content[chance.randrange(len(content))] = chance.choice(b"\x00\x01\x02\x7f\x80\xff")
        named["messages"] = bytes(content)
        found = _outcome(native, named["records_bytes"], 0, named)
        assert found == _outcome(encode, named["records_bytes"], 0, named)
        written += isinstance(found[0], bytes)

    assert written > 100


@pytest.mark.parametrize(
    "changes",
    [{"start": 7}, {"start": -1}, {"end": 20}, {"end": 6}, {"end": 10_000}, {"records_bytes": 0}],
)
def test_positions_outside_are_refused_alike(changes: dict[str, Any]) -> None:
    named = arguments(MESSAGES, **changes)

    assert _outcome(native, 4000, 0, named) == _outcome(encode, 4000, 0, named)
    assert _outcome(native, 4000, 0, named) == (None, bytes(4000))


def test_properties_too_long_with_the_broker_properties_are_refused_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain_tests, "encode_batch_records", native.encode_batch_records)

    plain_tests.test_properties_too_long_with_the_broker_properties_leave_nothing()
