"""A producer whose brokers fail, refuse, are slow or silent: attempts, deadlines, errors."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.client.aio.sending.producer import Producer
from orbitmq.client.aio.sending.send_hooks import SendContext
from orbitmq.client.core.sending.send_results import Durability, SendStatus
from orbitmq.clock import ManualClock, SystemClock
from orbitmq.errors import (
    BrokerUnknownError,
    CallTimeoutError,
    ConnectError,
    ConnectionLostError,
    ProtocolError,
    RemoteError,
    RouteNotFoundError,
    SendError,
    SendRefusedError,
    SendTimeoutError,
    TooManyCallsError,
)
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from tests.integration.client.conftest import WAIT_SECONDS, Cluster
from tests.integration.client.scripted_servers import (
    ScriptedBroker,
    ScriptedCluster,
    failed,
    scripted_cluster,
    silent,
    stored,
)
from tests.integration.conftest import PATIENCE_MS
from tests.waiting import until

MESSAGE = Message("t", b"x")
CLOCK = SystemClock()


def producer_of(cluster: ScriptedCluster, **options: Any) -> Producer:
    options.setdefault("retry_pause_ms", 1)
    return Producer("g", namesrv=cluster.namesrv, **options)


def timeless(cluster: ScriptedCluster, **options: Any) -> Producer:
    """A producer that takes no broker for slow, however slow the machine is."""
    return producer_of(cluster, clock=ManualClock(), **options)


async def queue_of(producer: Producer, broker_name: str) -> MessageQueue:
    return next(queue for queue in await producer.queues("t") if queue.broker_name == broker_name)


# --- another broker -------------------------------------------------------------------------


async def test_a_send_is_retried_at_the_other_broker_when_one_is_killed(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.start_broker("broker-b")
    await cluster.make_topic(topic)
    async with Producer(group, namesrv=cluster.namesrv, clock=ManualClock()) as producer:
        before = [await producer.send(Message(topic, b"x")) for _ in range(8)]
        await cluster.kill_broker("broker-a")
        after = [await producer.send(Message(topic, b"x")) for _ in range(8)]
        later = await producer.send_async(Message(topic, b"x"))

    assert {result.queue.broker_name for result in before} == {"broker-a", "broker-b"}
    assert {result.queue.broker_name for result in [*after, later]} == {"broker-b"}


async def test_sends_in_flight_when_their_broker_dies_go_to_the_other(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.start_broker("broker-b")
    await cluster.make_topic(topic)
    async with Producer(group, namesrv=cluster.namesrv) as producer:
        await producer.send(Message(topic, b"x"))
        sends = [asyncio.create_task(producer.send(Message(topic, b"x"))) for _ in range(200)]
        sends_async = [producer.send_async(Message(topic, b"x")) for _ in range(200)]
        await asyncio.wait(sends, return_when=asyncio.FIRST_COMPLETED)
        await cluster.kill_broker("broker-a")
        results = await asyncio.gather(*sends, *sends_async)

    assert {result.status for result in results} == {SendStatus.OK}


async def test_a_broker_that_comes_back_is_used_again(
    cluster: Cluster, topic: str, group: str
) -> None:
    await cluster.make_topic(topic)
    async with Producer(group, namesrv=cluster.namesrv, retries=20) as producer:
        await producer.send(Message(topic, b"x"))
        await cluster.kill_broker()
        send = asyncio.create_task(producer.send(Message(topic, b"x"), timeout_ms=PATIENCE_MS))
        await cluster.start_broker()

        assert (await send).status is SendStatus.OK


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
async def test_codes_that_depend_on_the_broker_are_retried_at_the_next(code: int) -> None:
    async with (
        scripted_cluster(ScriptedBroker("a", failed(code)), ScriptedBroker("b")) as cluster,
        timeless(cluster) as producer,
    ):
        for _ in range(12):
            assert (await producer.send(MESSAGE)).queue.broker_name == "b"
            assert (await producer.send_async(MESSAGE)).queue.broker_name == "b"

    # A failing broker is avoided; one that only refuses this topic is not.
    assert (len(cluster["a"].sends) == 1) == (code in {1, 2, 14, 1500})


async def test_each_attempt_goes_to_another_broker_than_the_last() -> None:
    brokers = [ScriptedBroker(name, failed(2)) for name in "abc"]
    async with scripted_cluster(*brokers) as cluster, timeless(cluster, retries=5) as producer:
        with pytest.raises(SendError) as raised:
            await producer.send(MESSAGE)

    tried = [failed_try.broker_name for failed_try in raised.value.tries]
    assert len(tried) == 6
    assert set(tried) == {"a", "b", "c"}
    assert all(first != second for first, second in itertools.pairwise(tried))
    assert raised.value.code == 2
    assert [len(broker.sends) for broker in brokers] == [tried.count(name) for name in "abc"]


async def test_each_attempt_sends_the_same_message() -> None:
    async with (
        scripted_cluster(
            ScriptedBroker("a", failed(14)), ScriptedBroker("b", failed(14))
        ) as cluster,
        producer_of(cluster) as producer,
    ):
        with pytest.raises(SendError):
            await producer.send(MESSAGE)

    assert len(cluster.sends) == 3
    assert len({sent.fields["i"] for sent in cluster.sends}) == 1
    assert {sent.fields["n"] for sent in cluster["a"].sends} == {"a"}


async def test_the_only_broker_is_retried_after_a_pause() -> None:
    async with (
        scripted_cluster(ScriptedBroker("a", failed(2))) as cluster,
        producer_of(cluster, retry_pause_ms=40) as producer,
    ):
        began_ms = CLOCK.monotonic_ms()
        with pytest.raises(SendError, match=r"3 tries.*overloaded"):
            await producer.send(MESSAGE)

    assert CLOCK.monotonic_ms() - began_ms >= 120
    assert len(cluster["a"].sends) == 3


@pytest.mark.parametrize(
    ("send", "tries"),
    [
        (lambda producer, _: producer.send(MESSAGE), 4),
        (lambda producer, _: producer.send_async(MESSAGE), 2),
        (lambda producer, queue: producer.send(MESSAGE, queue=queue), 1),
        (lambda producer, queue: producer.send(MESSAGE, selector=lambda *_: queue), 1),
        (lambda producer, queue: producer.send_async(MESSAGE, queue=queue), 2),
    ],
)
async def test_each_form_of_send_has_its_own_number_of_attempts(
    send: Callable[[Producer, MessageQueue], Any], tries: int
) -> None:
    brokers = [ScriptedBroker("a", failed(14)), ScriptedBroker("b", failed(14))]
    async with (
        scripted_cluster(*brokers) as cluster,
        producer_of(cluster, retries=3, async_retries=1) as producer,
    ):
        queue = await queue_of(producer, "a")
        with pytest.raises(SendError) as raised:
            await send(producer, queue)

    assert len(raised.value.tries) == tries
    assert len(cluster.sends) == tries
    if tries == 1:
        assert [sent.fields["n"] for sent in cluster.sends] == ["a"]


@pytest.mark.parametrize("code", [3, 13, 29, 4711])
async def test_a_refusal_that_every_broker_would_give_is_final(code: int) -> None:
    brokers = [ScriptedBroker("a", failed(code, "too odd")), ScriptedBroker("b", failed(code))]
    async with scripted_cluster(*brokers) as cluster, producer_of(cluster) as producer:
        with pytest.raises(SendRefusedError, match=f"refused, 1 try.*code {code}") as raised:
            await producer.send(MESSAGE)

    assert len(cluster.sends) == 1
    assert isinstance(raised.value.__cause__, RemoteError)
    assert (raised.value.code, raised.value.may_be_stored) == (code, False)


async def test_a_broker_that_closes_in_mid_reply_may_have_stored_the_message() -> None:
    async with scripted_cluster(ScriptedBroker("a", silent)) as cluster:
        broker = cluster["a"]
        async with producer_of(cluster, retries=0) as producer:
            send = asyncio.create_task(producer.send(MESSAGE))
            await until(lambda: len(broker.sends) == 1)
            for connection in broker.server.connections:
                connection.abort()
            with pytest.raises(SendError, match="may be stored nevertheless") as raised:
                await send

    assert isinstance(raised.value.tries[0].error, ConnectionLostError)
    assert raised.value.may_be_stored


async def test_a_reply_without_the_position_of_the_message_is_an_error() -> None:
    async with (
        scripted_cluster(ScriptedBroker("a", lambda request: request.reply())) as cluster,
        producer_of(cluster) as producer,
    ):
        with pytest.raises(SendRefusedError, match="stored, but not where") as raised:
            await producer.send(MESSAGE)

    assert isinstance(raised.value.__cause__, ProtocolError)
    assert raised.value.may_be_stored


async def test_a_broker_without_an_address_in_the_route_is_retried_elsewhere() -> None:
    async with (
        scripted_cluster(ScriptedBroker("a"), ScriptedBroker("b")) as cluster,
        producer_of(cluster) as producer,
    ):
        await producer.send(MESSAGE)
        assert producer._sender is not None
        routes = producer._sender.targets._routes
        routes._brokers = {"b": {0: cluster["b"].address}}

        results = [await producer.send(MESSAGE) for _ in range(8)]
        with pytest.raises(SendError, match="the route of topic 't' has no address") as raised:
            await producer.send(MESSAGE, queue=await queue_of(producer, "a"), timeout_ms=1000)

    assert {result.queue.broker_name for result in results} == {"b"}
    assert isinstance(raised.value.__cause__, BrokerUnknownError)


# --- brokers that are avoided ---------------------------------------------------------------


async def test_a_broker_that_failed_is_avoided_for_a_while() -> None:
    async with scripted_cluster(ScriptedBroker("a", failed(2)), ScriptedBroker("b")) as cluster:
        async with timeless(cluster) as producer:
            for _ in range(20):
                await producer.send(MESSAGE)
        assert len(cluster["a"].sends) == 1
        async with timeless(cluster, avoid_slow_brokers=False) as producer:
            for _ in range(20):
                await producer.send(MESSAGE)

    assert len(cluster["a"].sends) > 4


async def test_a_silent_broker_is_avoided_for_a_while() -> None:
    async with (
        scripted_cluster(ScriptedBroker("a", silent), ScriptedBroker("b")) as cluster,
        producer_of(
            cluster, clock=(clock := ManualClock()), try_timeout_ms=500, retries=1
        ) as producer,
    ):
        unanswered = cluster["a"].sends
        for _ in range(20):
            before = len(unanswered)
            send = asyncio.create_task(producer.send(MESSAGE))
            await until(lambda: send.done() or len(unanswered) > before)  # noqa: B023  # awaited
            if not send.done():
                await clock.advance(600)
            assert (await send).queue.broker_name == "b"

    assert len(unanswered) == 1


async def test_brokers_are_used_if_all_of_them_are_to_be_avoided() -> None:
    brokers = [ScriptedBroker("a", failed(2)), ScriptedBroker("b", failed(2))]
    async with scripted_cluster(*brokers) as cluster, producer_of(cluster) as producer:
        with pytest.raises(SendError):
            await producer.send(MESSAGE)
        for broker in brokers:
            broker.script = stored

        assert (await producer.send(MESSAGE)).status is SendStatus.OK


# --- time -----------------------------------------------------------------------------------


async def test_one_deadline_covers_all_attempts() -> None:
    brokers = [ScriptedBroker("a", silent), ScriptedBroker("b", silent)]
    async with (
        scripted_cluster(*brokers) as cluster,
        producer_of(
            cluster, clock=(clock := ManualClock()), retries=5, try_timeout_ms=240
        ) as producer,
    ):
        await producer.queues("t")
        for begin in (producer.send, producer.send_async):
            before = len(cluster.sends)
            send = asyncio.ensure_future(begin(MESSAGE, timeout_ms=600))
            for tries, left_ms in ((1, 240), (2, 240), (3, 120)):
                await until(lambda: len(cluster.sends) == before + tries)  # noqa: B023  # awaited
                assert not send.done()
                await clock.advance(left_ms)
            with pytest.raises(SendTimeoutError, match="not acknowledged in time") as raised:
                await send

            assert len(raised.value.tries) == 3
            assert raised.value.elapsed_ms == pytest.approx(600, abs=5)
            assert {type(tried.error) for tried in raised.value.tries} == {CallTimeoutError}
            assert raised.value.may_be_stored


async def test_a_silent_broker_delays_a_send_until_its_timeout_only() -> None:
    async with (
        scripted_cluster(ScriptedBroker("a", silent)) as cluster,
        producer_of(cluster, clock=(clock := ManualClock()), send_timeout_ms=150) as producer,
    ):
        send = asyncio.create_task(producer.send(MESSAGE))
        await until(lambda: len(cluster["a"].sends) == 1)
        await clock.advance(140)
        assert not send.done()
        await clock.advance(20)
        with pytest.raises(SendTimeoutError, match=r"1 try.*allow more than 150 ms"):
            await send

    assert len(cluster["a"].sends) == 1


async def test_a_silent_name_server_delays_a_send_until_its_timeout_only() -> None:
    async with scripted_cluster(ScriptedBroker("a")) as cluster:
        cluster.server.requests._handlers[105] = _never
        async with producer_of(cluster) as producer:
            with pytest.raises(Exception, match=cluster.namesrv):
                async with asyncio.timeout(WAIT_SECONDS / 2):
                    await producer.send(MESSAGE, timeout_ms=150)


async def _never(*_: object) -> None:
    """Never reply to a request."""


async def test_a_cancelled_caller_leaves_nothing_in_flight() -> None:
    clock = ManualClock()
    async with (
        scripted_cluster(ScriptedBroker("a")) as cluster,
        asyncio.timeout(WAIT_SECONDS),
        producer_of(cluster, clock=clock) as producer,
    ):
        await producer.send(MESSAGE)
        cluster["a"].script = silent
        send = asyncio.create_task(producer.send(MESSAGE))
        future = producer.send_async(MESSAGE, timeout_ms=50)
        await until(lambda: len(cluster["a"].sends) == 3)
        send.cancel()
        future.cancel()
        await asyncio.wait({send})
        assert send.cancelled()
        # The stop waits for sends in flight: at most the cancelled one.
        await clock.advance(60)


async def test_a_send_cancelled_before_its_route_is_known_is_not_sent() -> None:
    async with (
        scripted_cluster(ScriptedBroker("a")) as cluster,
        producer_of(cluster) as producer,
    ):
        future = producer.send_async(MESSAGE)
        future.cancel()
        await producer.send(MESSAGE)
        await producer.stop()

    assert len(cluster.sends) == 1


async def test_the_bound_on_calls_in_flight_fails_a_send_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        scripted_cluster(ScriptedBroker("a", silent)) as cluster,
        producer_of(cluster, clock=(clock := ManualClock()), send_timeout_ms=100) as producer,
    ):
        await producer.queues("t")
        assert producer._instance is not None
        monkeypatch.setattr(producer._instance.rpc.calls.unanswered, "calls_max", 3)
        sends = [asyncio.create_task(producer.send(MESSAGE)) for _ in range(5)]
        await until(lambda: len(cluster.sends) == 3)
        assert [send.done() for send in sends].count(True) == 2
        await clock.advance(110)
        done, _ = await asyncio.wait(sends)

    kinds = [type(send.exception()) for send in sends]
    assert kinds.count(SendRefusedError) == 2
    assert kinds.count(SendTimeoutError) == 3
    causes = {type(send.exception().__cause__) for send in done}  # type: ignore[union-attr]  # all failed
    assert TooManyCallsError in causes


# --- stored, but not as safely as wanted ----------------------------------------------


@pytest.mark.parametrize(
    ("code", "status", "durability"),
    [
        (ResponseCode.SUCCESS, SendStatus.OK, Durability.PROMISED),
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT, Durability.MEMORY),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT, Durability.MASTER),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE, Durability.MASTER),
    ],
)
async def test_the_result_says_how_safe_a_message_is(
    code: int, status: SendStatus, durability: Durability
) -> None:
    async with (
        scripted_cluster(ScriptedBroker("a", lambda request: stored(request, code))) as cluster,
        producer_of(cluster) as producer,
    ):
        result = await producer.send(MESSAGE)

    assert (result.status, result.durability) == (status, durability)
    assert len(cluster.sends) == 1


def weakly_stored(request: Command) -> Command:
    return stored(request, ResponseCode.FLUSH_DISK_TIMEOUT)


@pytest.mark.parametrize("asked_for", [False, True])
async def test_a_weakly_stored_message_goes_to_another_broker_with_the_option(
    asked_for: bool,  # noqa: FBT001  # a row of the table
) -> None:
    brokers = [ScriptedBroker("a", weakly_stored), ScriptedBroker("b", weakly_stored)]
    async with (
        scripted_cluster(*brokers) as cluster,
        timeless(cluster, retry_another_broker_when_not_store_ok=asked_for) as producer,
    ):
        weak = await producer.send(MESSAGE)
        assert weak.status is SendStatus.FLUSH_DISK_TIMEOUT
        assert len(cluster.sends) == (3 if asked_for else 1)
        cluster["b"].script = stored
        strong = {(await producer.send(MESSAGE)).status for _ in range(8)}

    assert strong == (
        {SendStatus.OK} if asked_for else {SendStatus.OK, SendStatus.FLUSH_DISK_TIMEOUT}
    )


async def test_a_weakly_stored_message_is_not_sent_twice_to_the_only_broker() -> None:
    async with (
        scripted_cluster(ScriptedBroker("a", weakly_stored)) as cluster,
        producer_of(cluster, retry_another_broker_when_not_store_ok=True) as producer,
    ):
        result = await producer.send(MESSAGE)

    assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert len(cluster.sends) == 1


async def test_a_weak_result_is_better_than_the_failure_of_the_next_attempt() -> None:
    brokers = [ScriptedBroker("a", weakly_stored), ScriptedBroker("b", failed(13))]
    async with (
        scripted_cluster(*brokers) as cluster,
        timeless(cluster, retry_another_broker_when_not_store_ok=True) as producer,
    ):
        for _ in range(4):
            await producer.send(MESSAGE, queue=await queue_of(producer, "a"))
        choice = producer._sender.targets.known("t").choice  # type: ignore[union-attr]  # it runs
        choice._position = len(choice.queues) - 1

        result = await producer.send(MESSAGE)

    assert result.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert len(cluster["b"].sends) == 1


# --- routes ---------------------------------------------------------------------------------


async def test_a_failed_send_looks_up_the_route_again() -> None:
    async with (
        scripted_cluster(ScriptedBroker("a"), ScriptedBroker("other")) as cluster,
        producer_of(cluster, retries=50, retry_pause_ms=20) as producer,
    ):
        other = cluster.brokers.pop("other")
        await producer.send(MESSAGE)
        gone = cluster["a"]
        cluster.moved["a"] = other.address
        await gone.server.stop()

        result = await producer.send(MESSAGE)

    assert result.queue.broker_name == "a"
    assert len(other.sends) == 1


async def test_sends_that_wait_for_a_master_share_a_few_lookups() -> None:
    async with (
        scripted_cluster(ScriptedBroker("a")) as cluster,
        producer_of(cluster) as producer,
    ):
        await producer.send(MESSAGE)
        await cluster["a"].server.stop()
        cluster.routes_asked.clear()

        sends = [producer.send(MESSAGE, timeout_ms=900) for _ in range(20)]
        outcomes = await asyncio.gather(*sends, return_exceptions=True)

    assert all(isinstance(outcome, SendTimeoutError) for outcome in outcomes)
    # Four times a second, and once as the first attempt failed.
    assert len(cluster.routes_asked) <= 5


async def test_a_missing_topic_is_looked_up_again_by_the_next_send() -> None:
    async with scripted_cluster(ScriptedBroker("a")) as cluster:
        cluster.missing = {"t", "TBW102"}
        async with producer_of(cluster) as producer:
            with pytest.raises(
                RouteNotFoundError, match=r"no route for topic 't'.*create the topic"
            ):
                await producer.send(MESSAGE)
            cluster.missing = {"t"}
            made = await producer.send(MESSAGE)

    assert cluster.routes_asked[:4] == ["t", "TBW102", "t", "TBW102"]
    assert made.status is SendStatus.OK
    assert cluster.sends[0].fields["c"] == "TBW102"
    assert cluster.sends[0].fields["d"] == "4"


async def test_topics_are_created_from_the_template_topic_of_the_options() -> None:
    async with scripted_cluster(ScriptedBroker("a")) as cluster:
        cluster.missing = {"t", "TBW102"}
        async with producer_of(
            cluster, template_topic="MINE", template_queues=3, route_interval_ms=100
        ) as producer:
            queues = await producer.queues("t")
            await producer.send(MESSAGE)
            await until(lambda: cluster.routes_asked.count("MINE") > 1)

    assert len(queues) == 3
    assert cluster.sends[0].fields["c"] == "MINE"


# --- one-way --------------------------------------------------------------------------------


async def test_a_one_way_send_makes_one_attempt_and_raises_its_own_failures() -> None:
    async with (
        scripted_cluster(ScriptedBroker("a", failed(1))) as cluster,
        producer_of(cluster) as producer,
    ):
        await producer.send_oneway(MESSAGE)
        await producer.send_oneway(MESSAGE)
        await until(lambda: len(cluster.sends) == 2)
        await cluster["a"].server.stop()
        with pytest.raises(SendError, match=r"1 try.*cannot connect") as raised:
            await producer.send_oneway(MESSAGE)

    assert isinstance(raised.value.__cause__, ConnectError)
    assert all(sent.is_oneway for sent in cluster.sends)


class FailureSeen:
    """Tells when an attempt has failed."""

    def __init__(self) -> None:
        self.event = asyncio.Event()

    def before_send(self, context: SendContext) -> None:
        """Needs nothing."""

    def after_send(self, context: SendContext) -> None:
        if context.error is not None:
            self.event.set()


@pytest.mark.parametrize("away_is", ["dead", "refusing"])
async def test_a_chosen_queue_does_not_wait_for_the_master_of_another_broker(away_is: str) -> None:
    seen = FailureSeen()
    refusing = ScriptedBroker("a", failed(ResponseCode.SERVICE_NOT_AVAILABLE))
    async with (
        scripted_cluster(refusing, ScriptedBroker("b")) as cluster,
        timeless(cluster, hooks=[seen]) as producer,
    ):
        away, here = await queue_of(producer, "a"), await queue_of(producer, "b")
        if away_is == "dead":
            await cluster["a"].server.stop()
        # No time passes, so that the route is not looked up again.
        waiting = [asyncio.ensure_future(producer.send(MESSAGE, queue=away)) for _ in range(2)]
        await asyncio.wait_for(seen.event.wait(), WAIT_SECONDS)

        result = await asyncio.wait_for(producer.send(MESSAGE, queue=here), WAIT_SECONDS)

        assert result.queue == here
        assert not any(one.done() for one in waiting)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_broker_that_refuses_is_asked_once_for_a_chosen_queue() -> None:
    refusing = ScriptedBroker("a", failed(ResponseCode.SERVICE_NOT_AVAILABLE))
    async with scripted_cluster(refusing) as cluster, producer_of(cluster) as producer:
        queue = await queue_of(producer, "a")

        with pytest.raises(SendError, match="1 try"):
            await producer.send(MESSAGE, queue=queue, timeout_ms=PATIENCE_MS)

        assert len(cluster["a"].sends) == 1
