"""Versions: the RocketMQ release of a peer, and the version of a broker's tables."""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.java_json import JavaLong

# RocketMQ numbers its releases by position in an ever-growing list.
V3_0_7_SNAPSHOT: Final = 28
V3_0_11: Final = 37
V3_1_8_SNAPSHOT: Final = 62
V3_4_9: Final = 121
V4_9_4: Final = 401
V5_0_0: Final = 413
V5_3_3: Final = 479

# The version that OrbitMQ reports: the newest release whose behaviour it follows.
OUR_VERSION: Final = V5_3_3

# From here on each release has two numbers, the first for its snapshots.
_V3_9_1_SNAPSHOT: Final = 194
_V5_9_9: Final = 611


def version_name(number: int) -> str:
    """Name a release as RocketMQ does; all before 3.9.1 are called V3."""
    if number < _V3_9_1_SNAPSHOT:
        return "V3"
    if number > _V5_9_9:
        return "HIGHER_VERSION"
    release = 500 + (number + 1 - V5_0_0) // 2
    snapshot = "" if (number - V5_0_0) % 2 == 0 else "_SNAPSHOT"
    return f"V{release // 100}_{release // 10 % 10}_{release % 10}{snapshot}"


class DataVersion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The version of a table of topics or groups; equal versions mean equal tables."""

    counter: JavaLong = 0
    state_version: JavaLong = 0
    timestamp: JavaLong = 0

    def next(self, now_ms: int) -> DataVersion:
        """Return the version after a change at `now_ms`."""
        return DataVersion(
            counter=self.counter + 1, state_version=self.state_version, timestamp=now_ms
        )
