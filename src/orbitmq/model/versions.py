"""Versions: which RocketMQ a peer is, and how new a broker's topics are."""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq.java_json import JavaLong

# RocketMQ numbers its releases by position in an ever-growing list.
V3_0_11: Final = 37
V4_9_4: Final = 401
V5_0_0: Final = 413
V5_3_3: Final = 479

# What OrbitMQ says it is: the newest release whose behaviour it follows.
OUR_VERSION: Final = V5_3_3


class DataVersion(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How new a table of topics or groups is; equal versions mean equal tables."""

    counter: JavaLong = 0
    state_version: JavaLong = 0
    timestamp: JavaLong = 0

    def next(self, now_ms: int) -> DataVersion:
        """The version after a change at `now_ms`."""
        return DataVersion(
            counter=self.counter + 1, state_version=self.state_version, timestamp=now_ms
        )
