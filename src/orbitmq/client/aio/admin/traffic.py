"""Traffic of topics: messages in, and messages out by group."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq.errors import RemoteError
from orbitmq.protocol.requests.statistics import CounterReply, GetCounter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.client.aio.admin.groups import Groups
    from orbitmq.client.aio.admin.reach import Reach
    from orbitmq.client.aio.admin.topics import Topics

_MESSAGES_IN: Final = "TOPIC_PUT_NUMS"
_MESSAGES_OUT: Final = "GROUP_GET_NUMS"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTraffic:
    """Messages into a topic, and out to one group; `group` is None if no group consumes it."""

    topic: str
    group: str | None
    lag: int
    in_per_second: float
    out_per_second: float
    # Over the last day, or since the broker started.
    messages_in: int
    messages_out: int


@dataclass(slots=True, eq=False)
class Traffic:
    """Reads the brokers' counters by topic and group."""

    _reach: Reach
    _topics: Topics
    _groups: Groups

    async def of(self, topic: str) -> list[TopicTraffic]:
        """Return the traffic of a topic: a row per group, or one row without a group."""
        masters = (await self._reach.masters_of(topic)).values()
        groups: list[str | None] = [*await self._topics.consumers(topic)]
        in_per_second, messages_in = await self._sum(masters, _MESSAGES_IN, topic)
        rows: list[TopicTraffic] = []
        for group in groups or [None]:
            out_per_second, messages_out, lag = 0.0, 0, 0
            if group is not None:
                key = f"{topic}@{group}"
                out_per_second, messages_out = await self._sum(masters, _MESSAGES_OUT, key)
                lag = (await self._groups.progress(group, topic=topic)).lag
            rows.append(
                TopicTraffic(
                    topic=topic,
                    group=group,
                    lag=lag,
                    in_per_second=in_per_second,
                    out_per_second=out_per_second,
                    messages_in=messages_in,
                    messages_out=messages_out,
                )
            )
        return rows

    async def _sum(self, addresses: Iterable[str], name: str, key: str) -> tuple[float, int]:
        counters = await asyncio.gather(
            *(self._counter(address, name, key) for address in addresses)
        )
        return sum(one.minute.per_second for one in counters), sum(map(_of_the_day, counters))

    async def _counter(self, address: str, name: str, key: str) -> CounterReply:
        try:
            return await self._reach.ask_for(address, GetCounter(name=name, key=key), CounterReply)
        except RemoteError:
            # Compat: brokers refuse to show a counter that they have not started yet.
            return CounterReply()


def _of_the_day(counter: CounterReply) -> int:
    # Compat: brokers sum up a longer span only at its end; until then a shorter one has it.
    return counter.day.sum or counter.hour.sum or counter.minute.sum
