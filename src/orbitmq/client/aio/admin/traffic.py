"""How much goes through topics: what comes in, and what each group takes out."""

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
    """What goes into a topic, and what one group takes out of it; no group where nobody does."""

    topic: str
    group: str | None
    lag: int
    in_per_second: float
    out_per_second: float
    # Over the last day, or since the broker started.
    messages_in: int
    messages_out: int


class Traffic:
    """Reads the counters that brokers keep by topic and by group."""

    def __init__(self, reach: Reach, topics: Topics, groups: Groups) -> None:
        self._reach = reach
        self._topics = topics
        self._groups = groups

    async def of(self, topic: str) -> list[TopicTraffic]:
        """Say how much goes through a topic: a row a group, or one without a group."""
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
            # Compat: brokers refuse to tell of what they have not counted yet.
            return CounterReply()


def _of_the_day(counter: CounterReply) -> int:
    # Compat: the sums of longer spans are made up at their ends; until then the shorter ones tell.
    return counter.day.sum or counter.hour.sum or counter.minute.sum
