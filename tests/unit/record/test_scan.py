"""Walking over records in the plain form."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from orbitmq.java_hash import java_hash
from orbitmq.record.decode import Verdict, decode_record
from orbitmq.record.encode import encode_blank
from orbitmq.record.layout import LOST_FLAG, SystemFlag
from orbitmq.record.properties import encode_properties
from orbitmq.record.scan import (
    DELAY_TOPIC,
    ENTRY,
    KEY,
    EntryRun,
    Walk,
    hash_key,
    hash_tag,
    is_sound,
    message_keys,
    record_tag_code,
    sound_records,
    walk,
)
from tests.unit.record.sample_records import KNOWN, Sample, damage, random_records

LEVELS = (1000, 5000, 10_000)
TAG_A = 2598919


def _walk(
    buffer: bytes | bytearray,
    start: int = 0,
    end: int | None = None,
    base_offset: int = 0,
    *,
    check_body: bool = True,
    with_keys: bool = True,
) -> Walk:
    return walk(
        buffer,
        start,
        len(buffer) if end is None else end,
        base_offset,
        check_body=check_body,
        delay_levels_ms=LEVELS,
        with_keys=with_keys,
    )


def _entries(run: EntryRun) -> list[tuple[int, ...]]:
    return list(ENTRY.iter_unpack(run.entries))


def _queue_of(sample: Sample) -> tuple[bytes, int]:
    return sample.topic, sample.queue_id


def test_records_of_several_queues_give_a_run_each() -> None:
    one = replace(KNOWN, queue_offset=7, store_ms=100)
    other = replace(KNOWN, topic=b"U", queue_offset=0, properties=b"", store_ms=200)
    records = [one, other, replace(one, queue_offset=8, body=b"longer", store_ms=300)]
    buffer = b"".join(record.encode() for record in records)

    found = _walk(buffer, base_offset=5000)

    assert found.position == len(buffer)
    assert found.stopped_by.verdict is Verdict.NOTHING
    assert (found.records, found.first_store_ms, found.last_store_ms) == (3, 100, 300)
    (run,) = found.runs[_queue_of(one)]
    assert run.first == 7
    assert _entries(run) == [(5000, 104, TAG_A), (5000 + 104 + 94, 108, TAG_A)]
    (run,) = found.runs[_queue_of(other)]
    assert (run.first, _entries(run)) == (0, [(5104, 94, 0)])


def test_the_same_topic_with_another_queue_is_another_run() -> None:
    buffer = KNOWN.encode() + replace(KNOWN, queue_id=2).encode()

    assert set(_walk(buffer).runs) == {(b"T", 1), (b"T", 2)}


@pytest.mark.parametrize("second", [0, 6, 7, 9, -(2**63), 2**63 - 1])
def test_a_gap_in_the_numbers_begins_another_run(second: int) -> None:
    buffer = KNOWN.encode() + replace(KNOWN, queue_offset=second).encode()

    first_run, second_run = _walk(buffer).runs[_queue_of(KNOWN)]

    assert (first_run.first, len(first_run.entries)) == (7, 20)
    assert (second_run.first, len(second_run.entries)) == (second, 20)


def test_no_number_follows_the_largest() -> None:
    last, lowest = replace(KNOWN, queue_offset=2**63 - 1), replace(KNOWN, queue_offset=-(2**63))

    runs = _walk(last.encode() + lowest.encode()).runs[_queue_of(KNOWN)]

    assert [run.first for run in runs] == [2**63 - 1, -(2**63)]


@pytest.mark.parametrize(
    ("transaction", "queued", "indexed"),
    [
        (0, True, True),
        (SystemFlag.PREPARED, False, True),
        (SystemFlag.COMMITTED, True, True),
        (SystemFlag.ROLLED_BACK, False, False),
    ],
)
def test_transactions_decide_on_queue_and_index(
    transaction: int, *, queued: bool, indexed: bool
) -> None:
    record = replace(
        KNOWN, system_flag=transaction, properties=encode_properties({"UNIQ_KEY": "id"})
    )

    found = _walk(record.encode())

    assert found.records == 1
    assert bool(found.runs) is queued
    assert bool(found.keys) is indexed


def test_keys_are_the_unique_id_and_each_word() -> None:
    properties = encode_properties({"KEYS": " a  b ", "UNIQ_KEY": "id"})
    buffer = replace(KNOWN, properties=properties).encode()

    found = _walk(buffer, base_offset=64)

    assert list(KEY.iter_unpack(found.keys)) == [
        (abs(java_hash(f"T#{key}")), 64, KNOWN.store_ms) for key in ("id", "a", "b")
    ]
    assert _walk(buffer, with_keys=False).keys == b""


def test_a_message_without_keys_has_none() -> None:
    assert message_keys(b"") == []
    assert message_keys(b"KEYS\x01  \x02") == []


def test_a_hash_without_a_positive_counterpart_counts_as_zero() -> None:
    key = _key_of_hash(-(2**31))
    assert java_hash(f"T#{key}") == -(2**31)

    assert hash_key(b"T", key.encode()) == 0
    assert hash_key(b"T", b"k") == java_hash("T#k")


def _key_of_hash(wanted: int) -> str:
    """A key of topic T whose hash is `wanted`: seven digits of base 31, the first ones large."""
    rest = (wanted - java_hash("T#") * 31**7) % 2**32
    digits: list[str] = []
    for power in range(6, -1, -1):
        digit, rest = divmod(rest, 31**power)
        digits.append(chr(digit))
    return "".join(digits)


@pytest.mark.parametrize(
    ("level", "due_ms"),
    [
        (b"1", 1000),
        (b"3", 10_000),
        (b"4", 10_000),
        (b"003", 10_000),
        (b"4294967297", 10_000),
        (b"9" * 5000, 10_000),
    ],
)
def test_an_entry_of_the_delay_topic_says_when_it_is_due(level: bytes, due_ms: int) -> None:
    properties = b"TAGS\x01TagA\x02DELAY\x01" + level + b"\x02"
    buffer = replace(KNOWN, topic=DELAY_TOPIC, properties=properties).encode()

    (run,) = _walk(buffer).runs[DELAY_TOPIC, KNOWN.queue_id]

    assert _entries(run)[0][2] == KNOWN.store_ms + due_ms


@pytest.mark.parametrize(
    "level", [b"", b"0", b"000", b"-1", b"x", b"1x", b"\xd9\xa1", "²".encode()]
)
def test_without_a_level_above_zero_the_delay_topic_has_tags_like_any(level: bytes) -> None:
    properties = b"TAGS\x01TagA\x02DELAY\x01" + level + b"\x02"

    assert record_tag_code(DELAY_TOPIC, properties, 5, LEVELS) == TAG_A


def test_without_delay_levels_the_delay_topic_has_tags_like_any() -> None:
    assert record_tag_code(DELAY_TOPIC, b"TAGS\x01TagA\x02DELAY\x011\x02", 5, ()) == TAG_A


def test_other_topics_have_no_due_time() -> None:
    assert record_tag_code(b"T", b"DELAY\x011\x02", 5, LEVELS) == 0


def test_a_damaged_store_time_does_not_stop_a_walk() -> None:
    record = replace(KNOWN, topic=DELAY_TOPIC, properties=b"DELAY\x011\x02", store_ms=2**63 - 1)

    (run,) = _walk(record.encode()).runs[DELAY_TOPIC, KNOWN.queue_id]

    assert _entries(run)[0][2] == -(2**63) + 999


@pytest.mark.parametrize(
    ("tag", "hashed"),
    [
        (b"TagA", TAG_A),
        ("中文".encode(), 646394),
        (b"polygenelubricants", -2147483648),
        (b"\xff", 0xFFFD),
        (b"a" * 100, java_hash("a" * 100)),
    ],
)
def test_tags_are_hashed_as_java_does(tag: bytes, hashed: int) -> None:
    assert hash_tag(tag) == hashed


def test_a_walk_stops_at_a_blank() -> None:
    blank = bytearray(40)
    encode_blank(blank, 0, 40)

    found = _walk(KNOWN.encode() + blank)

    assert (found.position, found.records) == (104, 1)
    assert (found.stopped_by.verdict, found.stopped_by.size) == (Verdict.BLANK, 40)


@pytest.mark.parametrize(
    ("behind", "verdict"),
    [
        (b"\x00", Verdict.CUT_OFF),
        (bytes(40), Verdict.NOTHING),
        (b"\x01" * 40, Verdict.BROKEN),
        (KNOWN.encode()[:-1], Verdict.CUT_OFF),
        (KNOWN.encode().replace(b"hi", b"ho"), Verdict.BAD_BODY),
    ],
)
def test_a_walk_stops_at_bytes_that_are_not_a_record(behind: bytes, verdict: Verdict) -> None:
    found = _walk(KNOWN.encode() + behind)

    assert (found.position, found.records) == (104, 1)
    assert found.stopped_by.verdict is verdict


def test_bodies_are_checked_only_on_request() -> None:
    damaged = KNOWN.encode().replace(b"hi", b"ho")

    assert _walk(damaged, check_body=False).records == 1
    assert _walk(damaged, check_body=True).records == 0


def test_a_walk_keeps_to_its_bytes() -> None:
    buffer = b"junk!" + KNOWN.encode() * 3

    found = _walk(buffer, 5, 5 + 2 * 104 + 50, base_offset=1000)

    assert (found.position, found.records) == (5 + 208, 2)
    assert found.stopped_by.verdict is Verdict.CUT_OFF
    assert _entries(found.runs[_queue_of(KNOWN)][0])[0][0] == 1005


def test_a_walk_over_no_bytes_finds_no_records() -> None:
    found = _walk(b"12345", 5)

    assert (found.position, found.records, found.runs) == (5, 0, {})
    assert found.stopped_by.verdict is Verdict.NOTHING
    assert (found.first_store_ms, found.last_store_ms) == (0, 0)


@pytest.mark.parametrize(
    ("start", "end", "base_offset"),
    [(-1, 5, 0), (0, 6, 0), (0, 5, -1), (0, 5, 2**63 - 5), (0, 5, 2**80)],
)
def test_a_walk_outside_of_the_buffer_or_of_all_offsets_is_refused(
    start: int, end: int, base_offset: int
) -> None:
    with pytest.raises(ValueError, match=r"are not in a buffer|is out of range"):
        _walk(b"12345", start, end, base_offset)


@pytest.mark.parametrize("seed", range(4))
def test_a_walk_over_damage_finds_what_reading_one_by_one_finds(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        buffer = random_records(rng, rng.randrange(1, 6))
        damage(rng, buffer)

        found = _walk(buffer, check_body=False)

        at = 0
        for _ in range(found.records):
            at += decode_record(buffer, at).size
        assert at == found.position <= len(buffer)


# --- offsets and texts --------------------------------------------------------------------------


def _walk_in_places(buffer: bytes, *, check_texts: bool = False) -> Walk:
    return walk(
        buffer,
        0,
        len(buffer),
        KNOWN.physical_offset,
        check_body=True,
        delay_levels_ms=(),
        with_keys=False,
        check_places=True,
        check_texts=check_texts,
    )


def test_a_walk_ends_at_a_record_written_for_another_offset() -> None:
    second = replace(KNOWN, physical_offset=KNOWN.physical_offset + KNOWN.size)

    found = _walk_in_places(KNOWN.encode() + second.encode() + KNOWN.encode())

    assert (found.records, found.position) == (2, 2 * KNOWN.size)
    assert found.stopped_by.verdict is Verdict.BROKEN
    assert found.stopped_by.reason == f"it was written for offset {KNOWN.physical_offset}"


@pytest.mark.parametrize("changes", [{"topic": b""}, {"topic": b"a\0"}, {"properties": b"a\0b"}])
def test_a_walk_over_what_may_be_torn_ends_at_zero_bytes(changes: dict[str, Any]) -> None:
    record = replace(KNOWN, **changes).encode()

    assert _walk_in_places(record).records == 1
    found = _walk_in_places(record, check_texts=True)

    assert (found.records, found.stopped_by.reason) == (0, "zero bytes in topic or properties")
    assert _walk_in_places(KNOWN.encode(), check_texts=True).records == 1


def test_a_walk_returns_the_newest_store_time_and_the_last() -> None:
    found = _walk(replace(KNOWN, store_ms=900).encode() + replace(KNOWN, store_ms=300).encode())

    assert (found.newest_store_ms, found.last_store_ms) == (900, 300)


# --- one record ---------------------------------------------------------------------------------


def test_a_record_is_sound_if_it_matches_its_queue_entry() -> None:
    record, offset = KNOWN.encode(), KNOWN.physical_offset

    assert is_sound(record, offset, b"T", 1)
    assert is_sound(record, offset, None, 99), "a queue that leads to other topics"
    assert not is_sound(record, offset + 1, b"T", 1)
    assert not is_sound(record, offset, b"U", 1)
    assert not is_sound(record, offset, b"T", 2)
    assert not is_sound(record + b"x", offset, b"T", 1)
    assert not is_sound(record[:-1], offset, b"T", 1)
    assert not is_sound(record.replace(b"hi", b"ho"), offset, b"T", 1)


# --- the records of a queue ---------------------------------------------------------------------

BASE = 5000


def _found(
    buffer: bytes | bytearray,
    entries: list[tuple[int, int, int]],
    *,
    low: int = 0,
    high: int = 2**62,
    count_max: int = 32,
    bytes_max: int = 10_000,
    number: int = 0,
    tag_filter: Callable[[int], bool] | None = None,
) -> tuple[list[bytes], int, int]:
    packed = b"".join(ENTRY.pack(*entry) for entry in entries)
    return sound_records(
        packed, buffer, BASE, low, high, b"T", 1, number, count_max, bytes_max, tag_filter
    )  # fmt: skip


def _queue(*changes: dict[str, int]) -> tuple[list[bytes], list[tuple[int, int, int]]]:
    """Consecutive records from BASE on, and their entries, with 0, 1, 2… as tag hashes."""
    records, entries, offset = list[bytes](), list[tuple[int, int, int]](), BASE
    for number, changed in enumerate(changes):
        fields = {"physical_offset": offset, "queue_offset": number} | changed
        records.append(replace(KNOWN, **fields).encode())  # type: ignore[arg-type]  # numbers only
        entries.append((offset, len(records[-1]), number))
        offset += len(records[-1])
    return records, entries


def test_records_of_a_queue_are_copied_up_to_the_limits() -> None:
    records, entries = _queue({}, {}, {}, {})
    buffer, size = b"".join(records), len(records[0])

    assert _found(buffer, entries) == (records, 4 * size, 4)
    assert _found(buffer, entries, count_max=2) == (records[:2], 2 * size, 2)
    assert _found(buffer, entries, bytes_max=3 * size - 1) == (records[:2], 2 * size, 2)
    assert _found(buffer, entries, count_max=0, bytes_max=0) == (records[:1], size, 1)
    assert _found(buffer, entries[1:], number=1) == (records[1:], 3 * size, 3)


def test_filtered_records_are_only_counted() -> None:
    records, entries = _queue({}, {}, {}, {})

    found = _found(b"".join(records), entries, count_max=1, tag_filter={1, 3}.__contains__)

    assert found == (records[1:2], len(records[1]), 2)
    assert _found(b"".join(records), entries, tag_filter=set[int]().__contains__) == ([], 0, 4)


def test_records_end_before_one_that_the_caller_must_judge() -> None:
    records, entries = _queue({}, {"flag": LOST_FLAG}, {"queue_id": 2}, {})
    buffer, size = b"".join(records), len(records[0])

    assert _found(buffer, entries) == (records[:1], size, 1)
    assert _found(buffer, entries[2:], number=2) == ([], 0, 0)
    assert _found(buffer, entries[3:], number=3) == (records[3:], size, 1)
    assert _found(buffer, entries[3:], number=2) == ([], 0, 0)
    for low, high in ((BASE + 1, 2**62), (0, BASE + size - 1), (0, -1), (0, 0)):
        assert _found(buffer, entries, low=low, high=high) == ([], 0, 0)
    assert _found(buffer[: size - 1], entries) == ([], 0, 0)
    for odd in ((BASE, 0, 0), (BASE, -size, 0), (BASE - 1, size, 0), (-1, size, 0), (0, size, 0)):
        assert _found(buffer, [odd, *entries]) == ([], 0, 0)
