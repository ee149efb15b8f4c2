"""Official consumers of every kind receive from our broker what they should, and nothing else."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from orbitmq.clock import SystemClock
from tests.interop import wire
from tests.interop.drivers import LAST, TIMESTAMP
from tests.interop.exchanges import Exchange, MakeExchange, bodies, texts
from tests.interop.peers import OurCluster
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until

pytestmark = pytest.mark.interop

MESSAGES = 40
ALL = sorted(f"message {number}" for number in range(MESSAGES))
# Long enough for what should not come to have come.
NOTHING_MORE_MS = 300
LOOK_MS = 500


@pytest.fixture(scope="module")
def forgetful_cluster(new_cluster: Callable[..., OurCluster]) -> Iterator[OurCluster]:
    """A cluster whose log files are small and may be deleted at once."""
    made = new_cluster(
        mappedFileSizeCommitLog=str(64 << 10), fileReservedTime="0", diskMaxUsedSpaceRatio="95"
    )
    yield made.start()
    made.stop()


@pytest.mark.scenario("client", "our broker: consumers of every kind")
@pytest.mark.parametrize("kind", ["push", "orderly", "lite"])
def test_consumer_receives_each_message_once(exchange: Exchange, kind: str) -> None:
    exchange.post(*bodies(MESSAGES))
    exchange.subscribe(kind=kind)

    before = exchange.received(MESSAGES)
    exchange.post(*bodies(MESSAGES, first=MESSAGES))
    received = exchange.received(2 * MESSAGES)

    assert texts(before) == ALL
    assert texts(received) == sorted(f"message {number}" for number in range(2 * MESSAGES))
    for queue_id in range(4):
        offsets = [m.queue_offset for m in received if m.queue_id == queue_id]
        if kind == "push":
            offsets.sort()
        assert offsets == list(range(2 * MESSAGES // 4))


@pytest.mark.scenario("client", "our broker: resumes where its group stopped")
def test_consumer_goes_on_where_its_group_stopped(exchange: Exchange) -> None:
    exchange.post(*bodies(MESSAGES))
    exchange.subscribe("a")
    first = exchange.received(MESSAGES, "a")
    wire.wait_committed(exchange.cluster.broker.address, exchange.group, exchange.topic, MESSAGES)
    exchange.leave("a")

    exchange.post(*bodies(MESSAGES, first=MESSAGES))
    exchange.subscribe("b")
    exchange.received(MESSAGES, "b")
    second = exchange.received(MESSAGES + 1, "b", timeout_ms=NOTHING_MORE_MS)

    assert texts(first) == ALL
    assert texts(second) == sorted(f"message {number}" for number in range(MESSAGES, 2 * MESSAGES))


@pytest.mark.scenario("client", "our broker: broadcast")
def test_every_consumer_of_a_broadcast_receives_every_message(exchange: Exchange) -> None:
    for consumer in ("a", "b"):
        exchange.subscribe(consumer, broadcast=True)

    exchange.post(*bodies(MESSAGES))

    assert texts(exchange.received(MESSAGES, "a")) == ALL
    assert texts(exchange.received(MESSAGES, "b")) == ALL


@pytest.mark.scenario("client", "our broker: tags")
def test_consumer_receives_the_tags_it_asked_for(exchange: Exchange) -> None:
    # "Aa" and "BB" have the same hash in Java, which is what the broker filters by.
    tags = ["red", "green", "blue", "Aa", "BB"]
    exchange.post(*({"body": f"{tag} {n}", "tags": tag} for n in range(5) for tag in tags))
    exchange.subscribe(expression="red || Aa")

    exchange.received(10)
    received = exchange.received(11, timeout_ms=NOTHING_MORE_MS)

    assert Counter(message.tags for message in received) == {"red": 5, "Aa": 5}


@pytest.mark.scenario("client", "our broker: SQL92")
def test_consumer_receives_what_its_sql_selects(exchange: Exchange) -> None:
    exchange.post(
        *(
            {"body": f"{color} {size}", "properties": {"color": color, "size": str(size)}}
            for color in ("red", "green", "blue")
            for size in range(5)
        ),
        {"body": "without properties"},
    )
    exchange.subscribe(sql="color IN ('red', 'blue') AND size BETWEEN 2 AND 3")

    exchange.received(4)
    received = exchange.received(5, timeout_ms=NOTHING_MORE_MS)

    assert texts(received) == ["blue 2", "blue 3", "red 2", "red 3"]


@pytest.mark.scenario("client", "our broker: retry, then the dead-letter topic")
def test_failing_message_comes_again_and_ends_among_the_dead_letters(exchange: Exchange) -> None:
    # A Go client looks for the retry topic every 20 s only, so it is to be there before.
    exchange.subscribe("scout")
    exchange.leave("scout")
    exchange.subscribe(attempts_max=3, failures=99)
    exchange.post({"body": "poison", "keys": "poison-key", "properties": {"mine": "kept"}})

    received = exchange.received(3)
    wire.wait_route_code(
        exchange.name_server,
        f"%DLQ%{exchange.group}",
        wire.SUCCESS,
        timeout_s=CLIENT_TIMEOUT_S,
    )
    exchange.subscribe("undertaker", topic=f"%DLQ%{exchange.group}", group=f"{exchange.group}-dead")
    (dead,) = exchange.received(1, "undertaker")
    nothing_more = exchange.received(4, timeout_ms=NOTHING_MORE_MS)

    assert [message.reconsume_times for message in received] == [0, 1, 2]
    assert {message.topic for message in received} == {exchange.topic}
    assert len(nothing_more) == 3
    assert (dead.body, dead.keys, dead.properties["mine"]) == ("poison", "poison-key", "kept")


@pytest.mark.scenario("client", "our broker: an ordered queue waits for a failed message")
def test_ordered_consumer_tries_again_in_place(exchange: Exchange) -> None:
    queue = {"broker": exchange.cluster.broker.name, "queue_id": 1}
    exchange.post(*({**message, **queue} for message in bodies(3)))
    exchange.subscribe(kind="orderly", failures=1)

    received = exchange.received(6)

    assert [(message.body, message.reconsume_times) for message in received] == [
        (f"message {number}", attempt) for number in range(3) for attempt in range(2)
    ]


@pytest.mark.scenario("client", "our broker: starts at a time, or at the end")
@pytest.mark.parametrize("start", [TIMESTAMP, LAST])
def test_new_group_starts_where_it_says(
    exchange_at: MakeExchange, forgetful_cluster: OurCluster, start: str
) -> None:
    exchange = exchange_at(forgetful_cluster)
    exchange.create_topic(queues=1)
    forget_first_messages(exchange)
    (before,) = exchange.post({"body": "before"})
    start_time = _next_second()

    (after,) = exchange.post({"body": "after"})
    exchange.subscribe(start=start, start_time=start_time)
    if start == LAST:
        wait_until(
            lambda: _receives_another(exchange),
            timeout_s=CLIENT_TIMEOUT_S,
            what="a message sent after the consumer found the end",
        )
    received = {message.body for message in exchange.received(1)}

    assert received == {"after" if start == TIMESTAMP else "last"}
    assert after.queue_offset == before.queue_offset + 1


def _receives_another(exchange: Exchange) -> bool:
    """Send one more: when a consumer has found the end, it does not say."""
    exchange.post({"body": "last"})
    return exchange.received(1, timeout_ms=LOOK_MS) != []


def forget_first_messages(exchange: Exchange) -> None:
    """Fill log files and delete them: a queue that still has its first message is read from there.

    Official brokers do it so, whatever a new group says.
    """
    exchange.open_producer(compress_above_bytes=1 << 20)
    exchange.post(*({"body": "old", "body_bytes": 40_000, "noise": True} for _ in range(4)))
    broker = exchange.cluster.broker.address
    queue = {"topic": exchange.topic, "queueId": "0"}

    def forgotten() -> bool:
        # Files go only once what was made from them is on disk, so it is asked for again.
        assert wire.ask(broker, wire.DELETE_EXPIRED_LOGS).code == wire.SUCCESS
        return int(wire.ask(broker, wire.GET_MIN_OFFSET, queue).fields["offset"]) > 0

    wait_until(forgotten, timeout_s=CLIENT_TIMEOUT_S, what="the first messages are deleted")


def _next_second() -> str:
    """Wait for the next second of the clock, and write it as clients do."""
    clock = SystemClock()
    second = clock.now_ms() // 1000 + 1
    wait_until(
        lambda: clock.now_ms() >= second * 1000, timeout_s=CLIENT_TIMEOUT_S, what="the next second"
    )
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(second))
