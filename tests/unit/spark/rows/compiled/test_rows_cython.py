"""The compiled columns: which records are read, bounds, and columns; test_compiled_rows.py has more."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from orbitmq.record.hosts import encode_host
from orbitmq.spark.rows.plain_rows import host_text
from tests.unit.record.sample_records import HOST_V6, KNOWN, Sample
from tests.unit.spark.sample_rows import joined

# Untyped: mypy reads the source, this is the compiled module.
native: Any = pytest.importorskip(
    "orbitmq.spark.rows.compiled.rows_cython",
    reason="not compiled; run: pip install --editable .",
    exc_type=ImportError,
)

ORDER = replace(KNOWN, properties=b"UNIQ_KEY\x01ID\x02KEYS\x01a b\x02TAGS\x01TagA\x02W\x01true\x02")
ORDER_V6 = replace(ORDER, system_flag=0x31, born_host=HOST_V6, store_host=HOST_V6)


def _columns(buffer: bytes | memoryview, positions: list[int], **checks: bool) -> Any:
    wanted = {"check_texts": True, "find_entries": True, "find_maps": True, "check_bodies": False}
    return native.columns_of(buffer, np.array(positions, np.int64), **wanted | checks)


def _is_read(sample: Sample, **checks: bool) -> bool:
    return bool(_columns(sample.encode(), [0], **checks).rows)


# --- which records are read ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "sample",
    [
        KNOWN,
        ORDER,
        replace(ORDER, topic=b"t" * 200),
        replace(ORDER, topic="тема".encode(), properties="k\x01größe 🚀".encode()),
        replace(ORDER, body=b"", properties=b""),
        replace(ORDER, system_flag=1),
        replace(ORDER, body=b"", system_flag=1),
        replace(ORDER, system_flag=0x2 | 0x4 | 0x8),
        replace(ORDER, system_flag=0x10, born_host=HOST_V6),
        replace(ORDER, system_flag=0x20, store_host=HOST_V6),
        replace(ORDER, system_flag=0x30, born_host=HOST_V6, store_host=HOST_V6, topic=b"t" * 128),
        replace(ORDER, properties=b"KEYS\x01a\x02k"),
        replace(ORDER, properties=b"KEYS\x01"),
        replace(ORDER, properties=b"\x01v\x02"),
        replace(ORDER, properties=b"k\x01\x02"),
        replace(ORDER, properties=b"k\x01v\x01w\x02k\x01v"),
        replace(ORDER, properties=b"long name of a property\x01v\x00w\x02"),
        replace(ORDER, properties=b"".join(b"%d\x01v\x02" % number for number in range(64))),
    ],
)
def test_nearly_all_records_are_read(sample: Sample) -> None:
    assert _is_read(sample, check_bodies=True)


@pytest.mark.parametrize(
    "sample",
    [
        replace(ORDER, born_host=encode_host("10.0.0.1", 65536)),
        replace(ORDER, store_host=encode_host("10.0.0.1", -1)),
        replace(ORDER, system_flag=0x10, born_host=encode_host("::1", 65536)),
        replace(ORDER, system_flag=0x20, store_host=encode_host("::1", -1)),
        replace(ORDER, topic=b"\xff"),
        replace(ORDER, properties=b"k\x01\xff\x02"),
        # More than a map of the compiled form takes.
        replace(ORDER, properties=b"".join(b"%d\x01v\x02" % number for number in range(65))),
    ],
)
def test_other_records_are_left(sample: Sample) -> None:
    assert not _is_read(sample)


def test_columns_that_are_not_read_are_not_checked() -> None:
    damaged = bytearray(replace(ORDER, topic=b"\xff", properties=b"\x01\xff").encode())
    damaged[88] ^= 1

    assert _columns(bytes(damaged), [0], check_texts=False, find_entries=False).rows == 1
    assert _columns(bytes(damaged), [0], find_entries=False).rows == 0
    many = replace(ORDER, properties=b"".join(b"%d\x01v\x02" % number for number in range(65)))
    assert _columns(many.encode(), [0], find_maps=False).rows == 1
    damaged = bytearray(ORDER.encode())
    damaged[88] ^= 1
    assert _columns(bytes(damaged), [0], check_bodies=True).rows == 0


@pytest.mark.parametrize("seed", range(4))
def test_utf8_is_checked_as_in_python(seed: int) -> None:
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


# --- bounds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_and_positions_are_never_read_beyond_their_end(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(5000):
        buffer = bytearray(rng.randbytes(rng.randrange(300)))
        # Beginnings of records, so that more than the first check is tried.
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(buffer) + 1)
            record = rng.choice([ORDER, ORDER_V6]).encode()
            buffer[at : at + 120] = record[: rng.randrange(len(record) + 1)]
        positions = [
            rng.choice([rng.randrange(-5, 400), 2**63 - 1, -(2**63), 2**32, len(buffer)])
            for _ in range(rng.randrange(6))
        ]
        # Nothing after the end may be read.
        columns = _columns(memoryview(bytes(buffer) + ORDER.encode())[: len(buffer)], positions)
        same = _columns(bytes(buffer), positions)
        assert columns.is_left == same.is_left
        assert len(columns.is_left) == len(positions)
        assert columns.rows == columns.is_left.count(0)
        for name in ("body", "topic", "properties"):
            assert columns.texts(name) == same.texts(name)
        compressed = len(columns.compressed_bodies())
        assert columns.bodies([b""] * compressed, 2**31) == same.bodies([b""] * compressed, 2**31)
        assert _used(columns.ids()) == _used(same.ids())
        for name in ("bornHost", "storeHost"):
            assert _used(columns.hosts(name, host_text)) == _used(same.hosts(name, host_text))
        assert columns.maps()[1:] == same.maps()[1:]


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


def test_sizes_above_32_bits_are_refused() -> None:
    large = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2**31,), (0,))

    with pytest.raises((OverflowError, BufferError, ValueError)):
        native.columns_of(
            large,
            np.array([0]),
            check_texts=True,
            find_entries=True,
            find_maps=True,
            check_bodies=False,
        )


def test_an_unknown_column_is_an_error() -> None:
    columns = _columns(ORDER.encode(), [0])

    with pytest.raises(ValueError, match="tuple"):
        columns.texts("size")
    with pytest.raises(KeyError):
        columns.hosts("size", str)


# --- columns ------------------------------------------------------------------------------------


def test_a_bit_says_that_a_text_is_missing() -> None:
    records = [ORDER, replace(ORDER, properties=b""), *[ORDER] * 8]
    buffer, positions = joined([record.encode() for record in records])

    validity, missing, offsets, texts = _columns(buffer, positions.tolist()).optional_texts("tags")

    assert (validity, missing) == (b"\xfd\x03", 1)
    assert np.frombuffer(offsets, np.int32).tolist() == [0, 4, 4, *range(8, 40, 4)]
    assert texts == b"TagA" * 9


def test_hosts_are_written_as_address_and_port() -> None:
    rng = random.Random(1)
    hosts = [encode_host("0.0.0.0", 0), encode_host("255.255.255.255", 65535)]
    hosts += [rng.randbytes(4) + rng.randrange(65536).to_bytes(4) for _ in range(300)]
    hosts += hosts[-1:] * 3
    records = [replace(ORDER, born_host=host, store_host=host).encode() for host in hosts]
    buffer, positions = joined(records)
    columns = _columns(buffer, positions.tolist())

    for name in ("bornHost", "storeHost"):
        assert _texts(len(hosts), columns.hosts(name, str)) == [
            f"{'.'.join(map(str, host[:4]))}:{int.from_bytes(host[4:])}" for host in hosts
        ]


def test_ipv6_hosts_are_formatted_once_while_they_repeat() -> None:
    asked: list[bytes] = []

    def text_of_v6(host: bytes) -> str:
        asked.append(host)
        return f"[host {host[15]}]:{host[-1]}"

    other_v6 = encode_host("2001:db8::8", 255)
    hosts = [HOST_V6, HOST_V6, KNOWN.born_host, HOST_V6, other_v6, other_v6]
    samples = [
        replace(ORDER, born_host=host, system_flag=0x10 if len(host) == 20 else 0) for host in hosts
    ]
    buffer, positions = joined([sample.encode() for sample in samples])
    columns = _columns(buffer, positions.tolist())

    v6, other = "[host 7]:159", "[host 8]:255"
    assert _texts(6, columns.hosts("bornHost", text_of_v6)) == [
        *(v6, v6, "127.0.0.1:50000", v6, other, other)
    ]
    assert asked == [HOST_V6, HOST_V6, other_v6]
    assert _texts(6, columns.hosts("storeHost", text_of_v6)) == ["127.0.0.1:10911"] * 6
    with pytest.raises(ValueError, match="too long for a host"):
        columns.hosts("bornHost", lambda _: "x" * 54)


def test_compressed_bodies_are_found_and_replaced() -> None:
    samples = [
        ORDER,
        replace(ORDER, body=b"one", system_flag=0x301 | 8),
        replace(ORDER, body=b"", system_flag=1),
        replace(ORDER, body=b"other", system_flag=1),
    ]
    buffer, positions = joined([sample.encode() for sample in samples])
    columns = _columns(buffer, positions.tolist())

    found = columns.compressed_bodies()

    assert [(buffer[at : at + size], flag) for at, size, flag in found] == [
        (b"one", 0x300 | 8),
        (b"other", 0),
    ]
    assert columns.bodies([b"first", b""], 7)[1] == b"hifirst"
    assert np.frombuffer(columns.bodies([b"first", b""], 7)[0], np.int32).tolist() == [
        0,
        2,
        7,
        7,
        7,
    ]
    with pytest.raises(OverflowError, match="7 bytes are too many"):
        columns.bodies([b"first", b""], 6)
    with pytest.raises(ValueError, match="1 bodies for 2"):
        columns.bodies([b"first"], 7)


def test_bodies_too_large_for_offsets_are_refused_before_copying() -> None:
    buffer, positions = joined([replace(ORDER, system_flag=1).encode()] * 9)
    columns = _columns(buffer, positions.tolist())

    # Never touched, so that it takes no memory.
    large = bytes(2**28)
    with pytest.raises(OverflowError, match="2415919104 bytes are too many"):
        columns.bodies([large] * 9, 2**40)


def test_a_map_has_the_last_value_of_a_name_at_its_first_position() -> None:
    samples = [
        replace(ORDER, properties=b"a\x01b\x02cc\x01dd\x02a\x01eee\x02cc\x01\x02"),
        replace(ORDER, properties=b""),
        replace(ORDER, properties=b"a\x01f"),
    ]
    buffer, positions = joined([sample.encode() for sample in samples])

    first_entries, names, values = _columns(buffer, positions.tolist()).maps()

    assert np.frombuffer(first_entries, np.int32).tolist() == [0, 2, 2, 3]
    assert _texts(3, names) == ["a", "cc", "a"]
    assert _texts(3, values) == ["eee", "dd", "f"]


def _used(column: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """Offsets and bytes, without those that are not used."""
    offsets, texts = column
    return offsets, texts[: int(np.frombuffer(offsets, np.int32)[-1])]


def _texts(count: int, column: tuple[bytes, bytes]) -> list[str]:
    offsets, texts = map(pa.py_buffer, column)
    found: list[str] = pa.StringArray.from_buffers(count, offsets, texts).to_pylist()
    return found
