"""The messages that benchmarks store: bodies of random bytes, keys that tell them apart."""

from __future__ import annotations

import random
from typing import Final

from orbitmq.record.hosts import encode_host
from orbitmq.record.properties import encode_properties

HOST: Final = encode_host("127.0.0.1", 10911)
NOW_MS: Final = 1_700_000_000_000
KEY: Final = "order-%d"
_PROPERTIES: Final = encode_properties(
    {"UNIQ_KEY": "7F00000100002A139A55%012X", "KEYS": KEY, "TAGS": "TagA", "WAIT": "true"}
)


def body_of(body_bytes: int) -> bytes:
    """A body that does not compress."""
    return random.Random(1).randbytes(body_bytes)  # bytes, no secret


def key_of(number: int) -> str:
    """The key of a message."""
    return KEY % number


def properties_of(number: int) -> bytes:
    """What an ordinary producer sends along: a unique id, a key, a tag."""
    return _PROPERTIES % (number, number)
