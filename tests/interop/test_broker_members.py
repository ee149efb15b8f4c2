"""Groups of official consumers at our broker: members come and go, offsets are set by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet

import pytest

from tests.interop import wire
from tests.interop.drivers import JavaDriver
from tests.interop.exchanges import Exchange, bodies, texts
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

MESSAGES = 80


def wait_members(exchange: Exchange, count: int) -> None:
    """Return once the broker knows this many members of the group."""
    wait_until(
        lambda: len(wire.members(exchange.cluster.broker.address, exchange.group)) == count,
        timeout_s=CLIENT_TIMEOUT_S,
        what=f"{count} members of {exchange.group}",
    )


def wait_all_received(
    exchange: Exchange, count: int, *consumers: str, but: AbstractSet[str] = frozenset()
) -> None:
    """Return once the consumers together have the first `count` messages, except some."""
    wanted = {f"message {number}" for number in range(count)} - but
    wait_until(
        lambda: wanted <= {m.body for one in consumers for m in exchange.received(0, one)},
        timeout_s=CLIENT_TIMEOUT_S,
        what=f"all {count} messages received by {consumers}",
    )


@pytest.mark.scenario("client", "our broker: members join and leave")
def test_nothing_is_lost_when_members_join_and_leave(exchange: Exchange) -> None:
    sent = 0

    def post() -> None:
        nonlocal sent
        exchange.post(*bodies(MESSAGES, first=sent))
        sent += MESSAGES

    exchange.subscribe("a")
    post()
    exchange.received(MESSAGES, "a")
    exchange.subscribe("b")
    wait_members(exchange, 2)

    def second_has_a_queue() -> bool:
        if exchange.received(1, "b", timeout_ms=200):
            return True
        post()
        return False

    wait_until(second_has_a_queue, timeout_s=CLIENT_TIMEOUT_S, what="the second member has a queue")
    wait_all_received(exchange, sent, "a", "b")
    by_leaver = exchange.received(0, "a")
    exchange.leave("a")
    wait_members(exchange, 1)
    post()
    wait_all_received(exchange, sent, "b", but={message.body for message in by_leaver})
    by_other = exchange.received(0, "b")

    # What came twice came to both: its queue moved before its last owner had committed it.
    for received in (by_leaver, by_other):
        assert max(Counter(message.body for message in received).values()) == 1


@pytest.mark.scenario("client", "our broker: offsets reset by time")
def test_group_goes_back_when_its_offsets_are_reset(
    exchange: Exchange, drivers: Callable[[str], JavaDriver]
) -> None:
    exchange.subscribe()
    exchange.post(*bodies(4))
    (first, *_) = sorted(exchange.received(4), key=lambda message: message.stored_ms)
    exchange.leave()
    wait_members(exchange, 0)

    drivers("v5").mqadmin(
        "resetOffsetByTime",
        "-n",
        exchange.name_server,
        "-g",
        exchange.group,
        "-t",
        exchange.topic,
        "-s",
        str(first.stored_ms),
    )
    exchange.subscribe("again")
    received = exchange.received(4, "again")

    assert texts(received) == [f"message {number}" for number in range(4)]
