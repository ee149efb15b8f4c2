"""The compiled columns: equal to the plain form on sound, odd, damaged and random bytes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from orbitmq.errors import ProtocolError
from orbitmq.record.hosts import encode_host
from orbitmq.spark import fast_forms
from orbitmq.spark.record_places import Positions, record_starts
from orbitmq.spark.rows import RowDecoder
from orbitmq.spark.schema import Projection, default_projection
from tests.unit.record.sample_records import HOST_V6, KNOWN, Sample, damage, random_sample
from tests.unit.spark.plain_rows import BROKER, joined, rows_of

# Loaded as a value without a type: mypy reads the source, this is what was compiled from it.
native: Any = pytest.importorskip(
    "orbitmq.spark.compiled.rows_cython",
    reason="not compiled; run: pip install --editable .",
    exc_type=ImportError,
)

TEXT = default_projection()
MAP = default_projection(properties="map")
ORDER = replace(KNOWN, properties=b"UNIQ_KEY\x01ID\x02KEYS\x01a b\x02TAGS\x01TagA\x02W\x01true\x02")


def _columns(buffer: bytes | memoryview, positions: list[int], **checks: bool) -> Any:
    wanted = {"check_texts": True, "find_entries": True, "check_bodies": False, **checks}
    return native.columns_of(buffer, np.array(positions, np.int64), **wanted)


def _is_read(sample: Sample, **checks: bool) -> bool:
    return bool(_columns(sample.encode(), [0], **checks).rows)


def _outcome(
    buffer: bytes, positions: Positions, projection: Projection, *, check_bodies: bool
) -> str | list[dict[str, Any]]:
    """The rows of records, or why there are none."""
    try:
        decoder = RowDecoder(projection, check_bodies=check_bodies)
        batch = decoder.decode(buffer, positions, BROKER)
    except ProtocolError as error:
        return str(error)
    batch.validate(full=True)
    return rows_of(batch)


def _assert_read_alike(
    buffer: bytes,
    positions: Positions,
    monkeypatch: pytest.MonkeyPatch,
    *,
    projection: Projection = TEXT,
    check_bodies: bool = False,
) -> bool:
    """Compare both forms; says whether there were rows."""
    found = _outcome(buffer, positions, projection, check_bodies=check_bodies)
    with monkeypatch.context() as patch:
        patch.setattr(fast_forms, "ordinary_rows", None)
        plain = _outcome(buffer, positions, projection, check_bodies=check_bodies)
    assert found == plain, (buffer, positions.tolist())
    return not isinstance(found, str)


def _samples(rng: random.Random, count: int) -> list[bytes]:
    """Ordinary records, and odd ones among them; few are packed, since none of these unpacks."""
    samples = [random_sample(rng) if rng.randrange(3) == 0 else ORDER for _ in range(count)]
    return [
        replace(sample, system_flag=sample.system_flag & ~(rng.randrange(20) > 0)).encode()
        for sample in samples
    ]


# --- which records are read ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "sample",
    [
        KNOWN,
        ORDER,
        replace(ORDER, topic=b"t" * 200),
        replace(ORDER, topic="тема".encode(), properties="k\x01größe 🚀".encode()),
        replace(ORDER, body=b"", properties=b""),
        # Nothing is packed where there is nothing.
        replace(ORDER, body=b"", system_flag=1),
        replace(ORDER, system_flag=0x2 | 0x4 | 0x8),
    ],
)
def test_ordinary_records_are_read(sample: Sample) -> None:
    assert _is_read(sample, check_bodies=True)


@pytest.mark.parametrize(
    "sample",
    [
        replace(ORDER, system_flag=1),
        replace(ORDER, system_flag=0x10, born_host=HOST_V6),
        replace(ORDER, system_flag=0x20, store_host=HOST_V6),
        replace(ORDER, born_host=encode_host("10.0.0.1", 65536)),
        replace(ORDER, store_host=encode_host("10.0.0.1", -1)),
        replace(ORDER, topic=b"\xff"),
        replace(ORDER, properties=b"k\x01\xff\x02"),
        replace(ORDER, properties=b"KEYS\x01a\x02k"),
        replace(ORDER, properties=b"KEYS\x01"),
        replace(ORDER, properties=b"\x01v\x02"),
        replace(ORDER, properties=b"k\x01\x02"),
        replace(ORDER, properties=b"k\x01v\x01w\x02"),
        replace(ORDER, properties=b"long name of a property\x01v\x00w\x02"),
    ],
)
def test_other_records_are_left(sample: Sample) -> None:
    assert not _is_read(sample)


def test_what_is_not_asked_for_is_not_checked() -> None:
    damaged = bytearray(replace(ORDER, topic=b"\xff", properties=b"\x01\xff").encode())
    damaged[88] ^= 1

    assert _columns(bytes(damaged), [0], check_texts=False, find_entries=False).rows == 1
    assert _columns(bytes(damaged), [0], check_texts=False).rows == 0
    assert _columns(bytes(damaged), [0], find_entries=False).rows == 0
    damaged = bytearray(ORDER.encode())
    damaged[88] ^= 1
    assert _columns(bytes(damaged), [0], check_bodies=True).rows == 0


@pytest.mark.parametrize("seed", range(4))
def test_text_is_what_python_takes_for_text(seed: int) -> None:
    rng = random.Random(seed)
    leads = [
        0x00,
        0x41,
        0x7F,
        0x80,
        0xBF,
        0xC0,
        0xC1,
        0xC2,
        0xDF,
        0xE0,
        0xED,
        0xEF,
        0xF0,
        0xF4,
        0xF5,
    ]
    follows = [0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0x41]
    texts = 0
    for _ in range(5000):
        topic = bytes(rng.choices([*leads, *follows], k=rng.randrange(12)))
        if rng.randrange(2):
            topic = (
                "".join(rng.choices("aé中🚀\u07ff\u0800\ud7ff\ue000\uffff", k=9)).encode() + topic
            )
        try:
            topic.decode()
        except UnicodeDecodeError:
            is_text = False
        else:
            is_text = True
        assert _is_read(replace(KNOWN, topic=topic)) is is_text, topic
        texts += is_text
    assert 500 < texts < 4500


# --- equality with the plain form ---------------------------------------------------------------


@pytest.mark.parametrize("check_bodies", [True, False])
@pytest.mark.parametrize("projection", [TEXT, MAP], ids=["text", "map"])
@pytest.mark.parametrize("seed", range(3))
def test_damaged_records_are_read_alike(
    seed: int, projection: Projection, monkeypatch: pytest.MonkeyPatch, *, check_bodies: bool
) -> None:
    rng = random.Random(seed)
    read = 0
    for _ in range(300):
        records = [bytearray(record) for record in _samples(rng, rng.randrange(1, 6))]
        for _ in range(rng.randrange(3)):
            damaged = rng.choice(records)
            if damaged:
                damage(rng, damaged)
        buffer, positions = joined([bytes(record) for record in records if record])
        if not buffer:
            continue
        read += _assert_read_alike(
            buffer,
            positions,
            monkeypatch,
            projection=projection,
            check_bodies=check_bodies,
        )
    assert read > 50


@pytest.mark.parametrize("seed", range(3))
def test_records_at_wrong_places_are_read_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    read = 0
    for _ in range(300):
        buffer, positions = joined(_samples(rng, 4))
        end = rng.choice([len(buffer), rng.randrange(len(buffer) // 2, len(buffer))])
        added = rng.sample(range(end), rng.choice([0, 0, 0, 1, 3]))
        wrong = np.union1d(positions[positions < end], np.array(added, np.int64)).astype(np.int64)
        read += _assert_read_alike(buffer[:end], wrong, monkeypatch)
    assert read > 10


def test_every_changed_byte_is_read_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    record = ORDER.encode()
    buffer, positions = joined([record, KNOWN.encode()])

    for at in range(len(record)):
        for value in (0, 1, 2, 3, 0x7F, 0x80, 0xFF, record[at] ^ 1, record[at] ^ 0x10):
            changed = bytearray(buffer)
            changed[at] = value
            _assert_read_alike(bytes(changed), positions, monkeypatch)


def test_every_end_in_a_record_is_read_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, positions = joined([KNOWN.encode(), ORDER.encode()])

    for end in range(1, len(buffer) + 1):
        _assert_read_alike(buffer[:end], positions[positions < end], monkeypatch)


@pytest.mark.parametrize("seed", range(3))
def test_starts_of_damaged_records_are_found_alike(seed: int) -> None:
    rng = random.Random(seed)
    ended_early = 0
    for _ in range(2000):
        buffer = bytearray(b"".join(_samples(rng, rng.randrange(5))))
        for _ in range(rng.randrange(3)):
            if buffer:
                damage(rng, buffer)
        records = bytes(buffer)
        starts, count, end = native.record_starts(records)
        plain_starts, plain_end = record_starts(records)
        assert np.frombuffer(starts, np.int64, count).tolist() == plain_starts.tolist(), records
        assert end == plain_end, records
        ended_early += end != len(records)
    assert ended_early > 200


# --- bounds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_and_positions_are_never_read_beyond_their_end(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5000):
        buffer = bytearray(rng.randbytes(rng.randrange(300)))
        # Beginnings of records, so that more than the first check is tried.
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(buffer) + 1)
            buffer[at : at + 90] = ORDER.encode()[: rng.randrange(92)]
        positions = [
            rng.choice([rng.randrange(-5, 400), 2**63 - 1, -(2**63), 2**32, len(buffer)])
            for _ in range(rng.randrange(6))
        ]
        # Nothing of what lies behind the end may be looked at.
        columns = _columns(memoryview(bytes(buffer) + ORDER.encode())[: len(buffer)], positions)
        same = _columns(bytes(buffer), positions)
        assert columns.is_left == same.is_left
        assert len(columns.is_left) == len(positions)
        assert columns.rows == columns.is_left.count(0)
        for name in ("body", "topic", "properties"):
            assert columns.texts(name) == same.texts(name)
        assert columns.ids() == same.ids()


def test_positions_that_do_not_ascend_are_left() -> None:
    record = ORDER.encode()

    assert _columns(record * 3, [0, 0, 2 * len(record)]).is_left == b"\1\0\0"
    assert _columns(record * 3, [len(record), 0]).is_left == b"\1\0"


def test_the_buffer_is_held_as_long_as_its_columns() -> None:
    buffer = bytearray(ORDER.encode())
    columns = _columns(memoryview(buffer), [0])
    buffer[:] = bytes(len(buffer))

    with pytest.raises(BufferError):
        buffer.clear()
    assert columns.texts("keys")[1] == bytes(3)
    del columns
    buffer.clear()


def test_what_cannot_be_counted_with_32_bits_is_refused() -> None:
    large = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2**31,), (0,))

    with pytest.raises((OverflowError, BufferError, ValueError)):
        native.columns_of(
            large, np.array([0]), check_texts=True, find_entries=True, check_bodies=False
        )


def test_an_unknown_column_is_an_error() -> None:
    columns = _columns(ORDER.encode(), [0])

    with pytest.raises(ValueError, match="tuple"):
        columns.texts("size")
    with pytest.raises(KeyError):
        columns.hosts("size")


# --- columns ------------------------------------------------------------------------------------


def test_a_text_that_lacks_is_told_by_a_bit() -> None:
    records = [ORDER, replace(ORDER, properties=b""), *[ORDER] * 8]
    buffer, positions = joined([record.encode() for record in records])

    are_there, lacking, offsets, texts = _columns(buffer, positions.tolist()).optional_texts("tags")

    assert (are_there, lacking) == (b"\xfd\x03", 1)
    assert np.frombuffer(offsets, np.int32).tolist() == [0, 4, 4, *range(8, 40, 4)]
    assert texts == b"TagA" * 9


def test_hosts_are_written_as_people_write_them() -> None:
    rng = random.Random(1)
    hosts = [encode_host("0.0.0.0", 0), encode_host("255.255.255.255", 65535)]
    hosts += [rng.randbytes(4) + rng.randrange(65536).to_bytes(4) for _ in range(300)]
    hosts += hosts[-1:] * 3
    records = [replace(ORDER, born_host=host, store_host=host).encode() for host in hosts]
    buffer, positions = joined(records)
    columns = _columns(buffer, positions.tolist())

    for name in ("bornHost", "storeHost"):
        offsets, written = map(pa.py_buffer, columns.hosts(name))
        column = pa.StringArray.from_buffers(len(hosts), offsets, written)
        assert column.to_pylist() == [
            f"{'.'.join(map(str, host[:4]))}:{int.from_bytes(host[4:])}" for host in hosts
        ]
