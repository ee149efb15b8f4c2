"""Offsets as Spark keeps them in its checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import StreamOffsetsError
from orbitmq.model.queues import MessageQueue
from orbitmq.spark.reading.offsets import Offsets, SeenMessage, StreamOffset, read_stream_offset
from orbitmq.spark.reading.partitions import QueueRange

A0 = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
A10 = MessageQueue(topic="orders", broker_name="broker-a", queue_id=10)
B2 = MessageQueue(topic="orders", broker_name="broker-b", queue_id=2)

queues = st.builds(
    MessageQueue,
    topic=st.text(max_size=3),
    broker_name=st.text(max_size=3),
    queue_id=st.integers(0, 2**31 - 1),
)
offsets = st.dictionaries(queues, st.integers(0, 2**63 - 1), max_size=6)


def stored(**fields: Any) -> dict[str, Any]:
    return {"v": 1, "base": {}, "queues": {}} | fields


# Checkpoints outlive releases: these texts must be readable for ever.
VERSION_1 = (
    '{"v": 1, "base": {"orders": {"broker-b": {"2": 4}}}, '
    '"queues": {"orders": {"broker-a": {"0": 7, "10": 5}, "broker-b": {"2": 9}}}}'
)
VERSION_2 = (
    '{"v": 2, "base": {"orders": {"broker-b": {"2": 4}}}, '
    '"queues": {"orders": {"broker-a": {"0": 7, "10": 5}, "broker-b": {"2": 9}}}, '
    '"seen": {"orders": {"broker-b": {"2": [8, 4096, 1794823761014]}}}}'
)


def test_the_text_is_what_checkpoints_of_version_2_hold() -> None:
    offset = StreamOffset(
        base={B2: 4, A0: 7},
        queues={B2: 9, A10: 5, A0: 7},
        seen={B2: SeenMessage(8, 4096, 1794823761014)},
    )

    assert json.dumps(offset.to_json()) == VERSION_2
    assert read_stream_offset(json.loads(VERSION_2)).seen == offset.seen


def test_checkpoints_of_version_1_are_read() -> None:
    assert read_stream_offset(json.loads(VERSION_1)) == StreamOffset(
        base={B2: 4}, queues={B2: 9, A10: 5, A0: 7}
    )


def test_an_offset_says_which_messages_its_batch_has() -> None:
    offset = StreamOffset(base={B2: 4}, queues={B2: 9, A10: 5})

    assert offset.ranges() == [QueueRange(A10, 5, 5), QueueRange(B2, 4, 9)]


@given(offsets, offsets)
def test_an_offset_comes_back_from_a_checkpoint_with_the_same_batch(
    base: Offsets, ends: Offsets
) -> None:
    offset = StreamOffset(base={q: base[q] for q in base if q in ends}, queues=ends)

    read = read_stream_offset(json.loads(json.dumps(offset.to_json())))

    assert read.queues == ends
    assert read.ranges() == offset.ranges()


@given(offsets, st.randoms(use_true_random=False))
def test_equal_offsets_have_equal_texts(ends: Offsets, random: Any) -> None:
    shuffled = list(ends.items())
    random.shuffle(shuffled)

    one = StreamOffset(base={}, queues=ends)
    other = StreamOffset(base=dict(shuffled), queues=dict(shuffled))

    assert json.dumps(one.to_json()) == json.dumps(other.to_json())


def test_offsets_of_a_newer_release_are_refused() -> None:
    with pytest.raises(StreamOffsetsError, match=r"version 3; this release reads up to 2.*newer"):
        read_stream_offset({"v": 3, "queues": "of another shape"})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ({}, "missing required field `v`"),
        ({"v": "1"}, "Expected `int`, got `str`"),
        ({"0": 5, "1": 5}, "missing required field `v`"),
        (stored(v=0), "there is no version 0"),
        (stored(extra=1), "unknown field `extra`"),
        ({"v": 1, "queues": {}}, "missing required field `base`"),
        (stored(queues={"orders": 5}), r"Expected `object`, got `int` - at `\$.queues"),
        (stored(queues={"orders": {"a": {"0": -1}}}), "Expected `int` >= 0"),
        (stored(queues={"orders": {"a": {"0": 1.5}}}), "Expected `int`, got `float`"),
        (stored(queues={"orders": {"a": {"x": 1}}}), "Expected `int`, got `str`"),
        (stored(queues={"orders": {"a": {"-1": 1}}}), "Expected `int` >= 0"),
        (stored(v=2), "missing required field `seen`"),
        (stored(v=2, seen={"orders": {"a": {"0": [1, 2]}}}), "Expected `array` of length 3"),
    ],
)
def test_a_damaged_offset_is_refused_with_the_reason(text: dict[str, Any], reason: str) -> None:
    with pytest.raises(StreamOffsetsError, match=f"unreadable offsets: .*{reason}"):
        read_stream_offset(text)


def test_a_long_damaged_offset_is_shown_in_part() -> None:
    with pytest.raises(StreamOffsetsError) as refused:
        read_stream_offset({"w": "x" * 10_000})

    assert len(str(refused.value)) < 500
