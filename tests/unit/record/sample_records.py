"""Records to test with: one that is known byte for byte, any at all, and damaged ones."""

from __future__ import annotations

import random
from dataclasses import astuple, dataclass, replace
from typing import Final

from hypothesis import strategies as st

from orbitmq.record.encode import encode_blank, encode_record
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import (
    BORN_HOST_V6,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    STORE_HOST_V6,
    record_bytes,
)

HOST_V4: Final = encode_host("127.0.0.1", 10911)
HOST_V6: Final = encode_host("2001:db8::7", 10911)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The arguments of `encode_record`, in its order; by default those of the known record."""

    topic: bytes = b"T"
    queue_id: int = 1
    queue_offset: int = 7
    physical_offset: int = 1000
    body: bytes = b"hi"
    properties: bytes = b"TAGS\x01TagA\x02"
    flag: int = 0
    system_flag: int = 0
    born_ms: int = 1700000000000
    born_host: bytes = encode_host("127.0.0.1", 50000)
    store_ms: int = 1700000000123
    store_host: bytes = HOST_V4
    reconsume_times: int = 0
    prepared_offset: int = 0

    @property
    def size(self) -> int:
        """How long the record is."""
        return record_bytes(
            body_bytes=len(self.body),
            topic_bytes=len(self.topic),
            properties_bytes=len(self.properties),
            system_flag=self.system_flag,
        )

    def encode(self) -> bytes:
        """Write the record."""
        buffer = bytearray(self.size)
        encode_record(buffer, 0, *astuple(self))
        return bytes(buffer)


KNOWN: Final = Sample()
KNOWN_BYTES: Final = bytes.fromhex(
    "00000068daa320a758932aac0000000100000000000000000000000700000000000003e800000000"
    "0000018bcfe568007f0000010000c3500000018bcfe5687b7f00000100002a9f0000000000000000"
    "000000000000000268690154000a54414753015461674102"
)

INT_32: Final = st.integers(-(2**31), 2**31 - 1)
INT_64: Final = st.integers(-(2**63), 2**63 - 1)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Any record that can be written."""
    topic_bytes = draw(st.sampled_from([0, 1, 30, 126, 127, 128, 129, 254, 255]))
    system_flag = draw(INT_32) & ~(BORN_HOST_V6 | STORE_HOST_V6)
    born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
    return Sample(
        topic=draw(st.binary(min_size=topic_bytes, max_size=topic_bytes)),
        queue_id=draw(INT_32),
        queue_offset=draw(INT_64),
        physical_offset=draw(INT_64),
        body=draw(st.binary(max_size=300)),
        properties=draw(st.binary(max_size=100)),
        flag=draw(INT_32),
        system_flag=system_flag | BORN_HOST_V6 * born_v6 | STORE_HOST_V6 * store_v6,
        born_ms=draw(INT_64),
        born_host=draw(st.binary(min_size=20, max_size=20))[: 20 if born_v6 else 8],
        store_ms=draw(INT_64),
        store_host=draw(st.binary(min_size=20, max_size=20))[: 20 if store_v6 else 8],
        reconsume_times=draw(INT_32),
        prepared_offset=draw(INT_64),
    )


# --- seeded, for tests by the ten thousand ------------------------------------------------------

# Properties that readers examine: valid, invalid and incomplete.
_PROPERTY_PARTS: Final = [
    *(b"TAGS\x01", b"KEYS\x01", b"UNIQ_KEY\x01", b"DELAY\x01", b"XTAGS\x01", b"TAGS", b"KEY"),
    *(
        b"\x01",
        b"\x02",
        b"\x02",
        b"\x02",
        b" ",
        b"  ",
        b"TagA",
        b"order-7",
        b"0",
        b"1",
        b"3",
        b"99",
    ),
    *(b"-1", b"00000000000000000002", b"9" * 5000, b"polygenelubricants"),
    *("é".encode(), "中文".encode(), "🚀".encode(), b"\xff", b"\xed\xa0\x80", b"\xf0\x9f", b"\xc3"),
]
_TOPICS: Final = [
    *(b"", b"T", b"orders", b"%RETRY%group", b"SCHEDULE_TOPIC_XXXX", b"SCHEDULE_TOPIC_XXXY"),
    *("тема".encode(), b"\xff\xfe", b"t" * 127, b"t" * 128, b"u" * 255),
]
_ODD_NUMBERS: Final = [0, 1, 2, 7, 90, 91, 127, 128, 255, 32767, 32768, 2**31 - 1, 2**31, 2**32 - 1]
_LONGS: Final = [0, 1, 2, 3, 4, 1700000000000, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, -1]


def random_sample(rng: random.Random) -> Sample:
    """A record whose topic, properties and flags cover the edge cases of a walk."""
    system_flag = rng.choice([0, 0, 0, 4, 8, 12, 1, 0x10, 0x20, 0x30, 0x38, rng.getrandbits(31)])
    return replace(
        KNOWN,
        topic=rng.choice(_TOPICS),
        queue_id=rng.choice([0, 0, 1, 2, 3, -1, -(2**31), 2**31 - 1]),
        queue_offset=rng.choice(_LONGS),
        body=rng.randbytes(rng.choice([0, 0, 1, 2, 40, 300])),
        properties=b"".join(rng.choices(_PROPERTY_PARTS, k=rng.randrange(12)))[:32767],
        system_flag=system_flag,
        born_host=rng.randbytes(20 if system_flag & BORN_HOST_V6 else 8),
        store_ms=rng.choice(_LONGS),
        store_host=rng.randbytes(20 if system_flag & STORE_HOST_V6 else 8),
    )


def random_records(rng: random.Random, count: int) -> bytearray:
    """Consecutive records, sometimes followed by a blank or by zeros."""
    buffer = bytearray(b"".join(random_sample(rng).encode() for _ in range(count)))
    match rng.randrange(4):
        case 0:
            rest = bytearray(rng.randrange(8, 60))
            encode_blank(rest, 0, len(rest))
            buffer += rest
        case 1:
            buffer += bytes(rng.randrange(1, 60))
        case _:
            pass
    return buffer


def damage(rng: random.Random, buffer: bytearray) -> None:
    """Change something: a bit, a byte, a number, a field of the first record, or the length."""
    at = rng.randrange(len(buffer))
    match rng.randrange(8):
        case 0:
            buffer[at] ^= 1 << rng.randrange(8)
        case 1:
            buffer[at] = rng.randrange(256)
        case 2:
            buffer[at : at + 4] = rng.choice(_ODD_NUMBERS).to_bytes(4)
        case 3:
            field_at = rng.choice([0, 4, 8, 36, 84, 96, 108])
            buffer[field_at : field_at + 4] = rng.choice(_ODD_NUMBERS).to_bytes(4)
        case 4:
            buffer[4:8] = rng.choice([MAGIC_V1, MAGIC_V2, MAGIC_BLANK]).to_bytes(4)
        case 5:
            del buffer[at:]
        case 6:
            del buffer[at : at + rng.randrange(1, 20)]
        case _:
            buffer[at:at] = rng.randbytes(rng.randrange(1, 20))
