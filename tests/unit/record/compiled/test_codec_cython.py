"""The compiled forms give the same bytes and results as the plain ones."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable
from dataclasses import asdict, astuple, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import MessageError
from orbitmq.record import encode, scan
from orbitmq.record.decode import Found, Verdict
from orbitmq.record.layout import LOST_FLAG
from orbitmq.record.scan import Walk
from tests.unit.record.sample_records import (
    HOST_V6,
    KNOWN,
    KNOWN_BYTES,
    Sample,
    damage,
    random_records,
    random_sample,
    samples,
)

# Loaded as a value without a type: mypy reads the source, this is what was compiled from it.
native: Any = pytest.importorskip(
    "orbitmq.record.compiled.codec_cython",
    reason="not compiled; run: pip install --editable .",
    exc_type=ImportError,
)

_FAR_OFFSETS = (-(2**63), -1, 2**63 - 1)
LEVELS = (1000, 5000, 10_000)
NUMBERS = [name for name, value in asdict(KNOWN).items() if isinstance(value, int)]


def _outcome(function: Callable[..., Any], *arguments: Any, **named: Any) -> object:
    """What a call returns, or which error it raises."""
    try:
        return function(*arguments, **named)
    except (MessageError, ValueError) as error:
        return type(error)


# --- writing ------------------------------------------------------------------------------------


def test_the_known_record_is_written_byte_for_byte() -> None:
    buffer = bytearray(104)

    assert native.encode_record(buffer, 0, **asdict(KNOWN)) == 104
    assert buffer == KNOWN_BYTES


@given(samples(), st.integers(0, 20))
def test_any_record_is_written_alike(sample: Sample, at: int) -> None:
    plain, compiled = bytearray(at + sample.size + 3), bytearray(at + sample.size + 3)

    encode.encode_record(plain, at, *astuple(sample))
    size = native.encode_record(compiled, at, *astuple(sample))

    assert size == sample.size
    assert compiled == plain


@pytest.mark.parametrize("seed", range(4))
def test_odd_records_are_written_alike(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(2500):
        sample = random_sample(rng)
        compiled = bytearray(sample.size)
        native.encode_record(compiled, 0, *astuple(sample))
        assert compiled == sample.encode()


@pytest.mark.parametrize("body_bytes", [0, 1, 65_536, 5_000_000])
def test_large_bodies_are_written_alike(body_bytes: int) -> None:
    sample = replace(KNOWN, body=random.Random(1).randbytes(body_bytes))
    compiled = bytearray(sample.size)

    native.encode_record(compiled, 0, *astuple(sample))

    assert compiled == sample.encode()


def test_a_mapped_file_can_be_written_to() -> None:
    with mmap.mmap(-1, 4096) as mapped, memoryview(mapped) as view:
        assert native.encode_record(view, 100, *astuple(KNOWN)) == 104
        assert view[100:204] == KNOWN_BYTES


def test_a_buffer_that_cannot_be_written_to_is_refused() -> None:
    with pytest.raises(BufferError):
        native.encode_record(bytes(200), 0, *astuple(KNOWN))


@pytest.mark.parametrize("field", NUMBERS)
def test_a_number_too_large_is_refused_alike(field: str) -> None:
    for value in (2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, -(2**63) - 1):
        changed = replace(KNOWN, **{field: value})  # type: ignore[arg-type]  # a number field
        plain, compiled = bytearray(200), bytearray(200)

        outcome = _outcome(native.encode_record, compiled, 0, *astuple(changed))

        assert outcome == _outcome(encode.encode_record, plain, 0, *astuple(changed)), value
        assert compiled == (bytes(200) if outcome is MessageError else plain), value


@pytest.mark.parametrize("field", ["topic", "properties", "born_host", "store_host"])
@pytest.mark.parametrize("system_flag", [0, 0x10, 0x20, 0x30])
def test_a_field_of_a_wrong_length_is_refused_alike(field: str, system_flag: int) -> None:
    sample = replace(KNOWN, system_flag=system_flag)
    if system_flag & 0x10:
        sample = replace(sample, born_host=HOST_V6)
    if system_flag & 0x20:
        sample = replace(sample, store_host=HOST_V6)
    for size in (0, 7, 8, 9, 20, 21, 127, 128, 255, 256, 32767, 32768, 70_000):
        changed = replace(sample, **{field: b"x" * size})  # type: ignore[arg-type]  # bytes
        plain, compiled = bytearray(80_000), bytearray(80_000)

        outcome = _outcome(native.encode_record, compiled, 0, *astuple(changed))

        assert outcome == _outcome(encode.encode_record, plain, 0, *astuple(changed)), size
        assert compiled == plain, size


@pytest.mark.parametrize("size", [0, 103, 104, 105, 208])
def test_a_record_that_does_not_fit_is_refused_alike(size: int) -> None:
    for at in (-105, -104, -1, 0, 1, 96, 104, 105, 2**62):
        plain, compiled = bytearray(size), bytearray(size)

        outcome = _outcome(native.encode_record, compiled, at, *astuple(KNOWN))

        assert outcome == _outcome(encode.encode_record, plain, at, *astuple(KNOWN)), at
        assert compiled == plain, at


# --- walking ------------------------------------------------------------------------------------


def _assert_walks_alike(
    buffer: bytes | bytearray | memoryview,
    start: int,
    end: int,
    base_offset: int = 0,
    *,
    check_body: bool,
    with_keys: bool = True,
    check_places: bool = False,
    check_texts: bool = False,
) -> Walk:
    def outcome(walk: Callable[..., Walk]) -> object:
        return _outcome(
            walk,
            buffer,
            start,
            end,
            base_offset,
            check_body=check_body,
            delay_levels_ms=LEVELS,
            with_keys=with_keys,
            check_places=check_places,
            check_texts=check_texts,
        )

    compiled, plain = outcome(native.walk), outcome(scan.walk)
    assert compiled == plain, (bytes(buffer).hex(), start, end)
    if isinstance(compiled, Walk) and isinstance(plain, Walk):
        assert list(compiled.runs) == list(plain.runs)
        return compiled
    return Walk(start, Found(Verdict.NOTHING))


@given(st.lists(samples(), max_size=8), st.booleans(), st.booleans(), st.integers(0, 2**62))
def test_any_records_are_walked_over_alike(
    several: list[Sample],
    check_body: bool,  # noqa: FBT001
    with_keys: bool,  # noqa: FBT001
    base_offset: int,
) -> None:
    buffer = b"".join(sample.encode() for sample in several)

    found = _assert_walks_alike(
        buffer, 0, len(buffer), base_offset, check_body=check_body, with_keys=with_keys
    )

    assert found.records == len(several)


@pytest.mark.parametrize("seed", range(6))
def test_odd_records_are_walked_over_alike(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(400):
        buffer = random_records(rng, 8)
        found = _assert_walks_alike(buffer, 0, len(buffer), check_body=True)
        assert found.records == 8


@pytest.mark.parametrize("check_body", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_damage_is_walked_over_alike(seed: int, *, check_body: bool) -> None:
    rng = random.Random(seed)
    for _ in range(2500):
        buffer = random_records(rng, rng.randrange(1, 5))
        for _ in range(rng.randrange(1, 4)):
            if buffer:
                damage(rng, buffer)
        _assert_walks_alike(buffer, 0, len(buffer), check_body=check_body)


@pytest.mark.parametrize("check_body", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_whole_records_are_found_alike(seed: int, *, check_body: bool) -> None:
    rng = random.Random(seed)
    for _ in range(1500):
        base = rng.choice([0, 5000])
        buffer = bytearray()
        for _ in range(rng.randrange(1, 5)):
            buffer += replace(random_sample(rng), physical_offset=base + len(buffer)).encode()
        if rng.random() < 0.5:
            damage(rng, buffer)
        start, end = 0, rng.randrange(len(buffer) + 1)

        found = native.whole_records(buffer, start, end, base, check_body=check_body)

        assert found == scan.whole_records(buffer, start, end, base, check_body=check_body)


@pytest.mark.parametrize("check_body", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_parts_of_a_buffer_are_walked_over_alike(seed: int, *, check_body: bool) -> None:
    rng = random.Random(seed)
    for _ in range(1500):
        before = rng.randbytes(rng.randrange(40))
        buffer = bytearray(before) + random_records(rng, 3)
        start = rng.choice([len(before), len(before), rng.randrange(len(buffer))])
        end = rng.randrange(start, len(buffer) + 1)
        _assert_walks_alike(memoryview(buffer), start, end, 77, check_body=check_body)
        # Bytes beyond the end are ignored: the result is the same without them.
        assert native.walk(
            bytes(buffer[:end]),
            start,
            end,
            0,
            check_body=check_body,
            delay_levels_ms=LEVELS,
            with_keys=True,
        ) == native.walk(
            bytes(buffer[:end]) + rng.randbytes(100),
            start,
            end,
            0,
            check_body=check_body,
            delay_levels_ms=LEVELS,
            with_keys=True,
        )


@pytest.mark.parametrize("check_texts", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_records_at_their_offsets_are_walked_over_alike(seed: int, *, check_texts: bool) -> None:
    rng = random.Random(seed)
    passed = 0
    for _ in range(1000):
        base = rng.randrange(2**40)
        buffer = bytearray()
        for _ in range(4):
            at = base + len(buffer) + (rng.randrange(8) == 0)
            buffer += replace(random_sample(rng), physical_offset=at).encode()
        if rng.randrange(2):
            damage(rng, buffer)
        passed += _assert_walks_alike(
            buffer,
            0,
            len(buffer),
            base,
            check_body=True,
            check_places=True,
            check_texts=check_texts,
        ).records

    assert passed > 1000


# --- checking -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_records_are_found_sound_alike(seed: int) -> None:
    rng = random.Random(seed)
    sound = 0
    for _ in range(2000):
        sample = random_sample(rng)
        record = bytearray(sample.encode())
        for _ in range(rng.randrange(3)):
            if record:
                damage(rng, record)
        arguments = (
            bytes(record),
            rng.choice([sample.physical_offset, sample.physical_offset, 5, 2**63 - 1]),
            rng.choice([sample.topic, sample.topic, None, b"others"]),
            rng.choice([sample.queue_id, sample.queue_id, 5]),
        )
        compiled = native.is_sound(*arguments)
        assert compiled is scan.is_sound(*arguments), arguments
        sound += compiled

    assert sound > 200


def test_every_changed_byte_of_a_record_is_found_sound_alike() -> None:
    record = KNOWN.encode()

    for at in range(len(record)):
        for value in range(256):
            changed = bytes(record[:at]) + bytes([value]) + bytes(record[at + 1 :])
            arguments = (changed, KNOWN.physical_offset, KNOWN.topic, KNOWN.queue_id)
            assert native.is_sound(*arguments) is scan.is_sound(*arguments), (at, value)
    for end in range(len(record)):
        assert not native.is_sound(record[:end], KNOWN.physical_offset, None, 0)


@pytest.mark.parametrize("seed", range(4))
def test_records_of_queues_are_found_alike(seed: int) -> None:
    rng = random.Random(seed)

    def mostly(usual: Any, *others: Any) -> Any:
        return usual if rng.random() < 0.9 else rng.choice(others)

    taken = ended_early = 0
    for _ in range(1000):
        base = mostly(1000, 0, 2**62, 2**63 - 1, -1)
        first = rng.choice([0, 1, 2**40])
        buffer, rows = bytearray(), list[tuple[int, int, int]]()
        for _ in range(rng.randrange(8)):
            sample = replace(
                KNOWN,
                physical_offset=min(base + len(buffer), 2**63 - 1),
                queue_offset=first + len(rows),
                flag=mostly(0, 7, LOST_FLAG),
                body=rng.randbytes(rng.randrange(200)),
            )
            rows.append((sample.physical_offset, sample.size, rng.randrange(3)))
            buffer += sample.encode()
        if buffer and rng.random() < 0.2:
            damage(rng, buffer)
        if rows and rng.random() < 0.2:
            odd_bytes = rng.choice([0, 1, -1, 2**31 - 1, -(2**31)])
            rows[rng.randrange(len(rows))] = (rng.choice([base, *_FAR_OFFSETS]), odd_bytes, 0)
        arguments = (
            b"".join(scan.ENTRY.pack(*row) for row in rows),
            rng.choice([bytes, bytearray, memoryview])(buffer),
            base,
            mostly(0, base, min(base + 150, 2**63 - 1), *_FAR_OFFSETS),
            mostly(2**63 - 1, min(base + 400, 2**63 - 1), *_FAR_OFFSETS),
            mostly(KNOWN.topic, None, b"others"),
            mostly(KNOWN.queue_id, 5, 2**40),
            mostly(first, first + 1, -1),
            mostly(32, 2, 0, -1),
            mostly(10_000, 300, 0, -1, -(2**63)),
            rng.choice([None, {0, 1}.__contains__]),
        )

        found = native.sound_records(*arguments)

        assert found == scan.sound_records(*arguments), arguments
        taken += len(found[0])
        ended_early += found[2] < len(rows)

    assert taken > 500
    assert ended_early > 100


def test_a_filter_that_fails_leaves_the_buffer_free() -> None:
    buffer = bytearray(KNOWN.encode())
    entries = scan.ENTRY.pack(KNOWN.physical_offset, len(buffer), 0)

    with pytest.raises(ZeroDivisionError):
        native.sound_records(
            entries, buffer, 1000, 0, 2**62, b"T", 1, 0, 32, 1000, lambda _: bool(1 // 0)
        )

    buffer.clear()  # fails while somebody looks at it


def test_every_end_in_a_record_is_walked_over_alike() -> None:
    buffer = KNOWN.encode() + replace(KNOWN, topic=b"t" * 200).encode()

    for end in range(len(buffer) + 1):
        for check_body in (True, False):
            _assert_walks_alike(buffer, 0, end, check_body=check_body)


def test_every_changed_byte_is_walked_over_alike() -> None:
    record = replace(KNOWN, properties=b"TAGS\x01TagA\x02UNIQ_KEY\x01k\x02KEYS\x01a b\x02").encode()

    for at in range(len(record)):
        for value in range(256):
            changed = bytearray(record + KNOWN_BYTES)
            changed[at] = value
            _assert_walks_alike(changed, 0, len(changed), check_body=at % 2 == 0)


def test_many_queues_in_turn_are_walked_over_alike() -> None:
    rng = random.Random(1)
    offsets: dict[tuple[bytes, int], int] = {}
    records = bytearray()
    for _ in range(5000):
        queue = b"topic-%d" % rng.randrange(300), rng.randrange(4)
        offsets[queue] = offsets.get(queue, -1) + rng.choice([1, 1, 1, 1, 2])
        topic, queue_id = queue
        records += replace(
            KNOWN, topic=topic, queue_id=queue_id, queue_offset=offsets[queue]
        ).encode()

    found = _assert_walks_alike(records, 0, len(records), check_body=True)

    assert found.records == 5000
    assert len(found.runs) == len(offsets)


@pytest.mark.parametrize(
    ("start", "end", "base_offset"),
    [(-1, 5, 0), (0, 6, 0), (5, 3, 0), (0, 5, -1), (0, 5, 2**63 - 5), (0, 5, 2**80)],
)
def test_a_walk_outside_of_its_bounds_is_refused_alike(
    start: int, end: int, base_offset: int
) -> None:
    _assert_walks_alike(b"12345", start, end, base_offset, check_body=True)
