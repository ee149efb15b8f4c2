"""Our transaction producers at our broker and at official ones, and stores that change hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from orbitmq.client import TransactionState
from orbitmq.client.aio import TransactionProducer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.model.messages import Message
from orbitmq.model.names import HALF_DONE_TOPIC
from tests.interop import wire
from tests.interop.official import NO_IDLE_LOOP, OfficialBroker
from tests.interop.ours import OrbitBroker
from tests.interop.peers import BROKERS, OUR_LINE, SITES, Peer, StartNameServer
from tests.interop.python_trials import PATIENCE_MS, Site, Trial
from tests.interop.stores import SMALL_FILES
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import beside

pytestmark = pytest.mark.interop

FAST_CHECKS = {
    "transactionTimeOut": "100",
    "transactionCheckInterval": "1000",
    # After the usual 15, a transaction would be given up while a slow broker stops.
    "transactionCheckMax": "1000",
    **NO_IDLE_LOOP,
}
# RocketMQ copies a half that it asks about: if that was committed meanwhile, the copy is open all the
# same, and is committed again.
NO_CHECKS = {**FAST_CHECKS, "transactionTimeOut": "600000"}
OUR_CHECKS = {name: value for name, value in FAST_CHECKS.items() if name not in NO_IDLE_LOOP}


def at_line(
    line: str, folder: Path, name_server: str, checks: Mapping[str, str] = FAST_CHECKS
) -> OfficialBroker | OrbitBroker:
    """A broker that asks soon how transactions ended, unless told otherwise."""
    name = "transactions"
    if line == OUR_LINE:
        return OrbitBroker(name, folder, [name_server], {**SMALL_FILES, **OUR_CHECKS})
    return OfficialBroker(line, name, folder, [name_server], {**SMALL_FILES, **checks})


@pytest.fixture(params=SITES, ids=str)
def site(
    request: pytest.FixtureRequest,
    start_name_server: StartNameServer,
    new_folder: Callable[[str], Path],
) -> Iterator[Site]:
    line = request.param.line
    name_server = start_name_server().address
    broker = at_line(line, new_folder(f"transactions-{line}"), name_server)
    broker.process.start()
    try:
        broker.wait_ready()
        yield Site(line, name_server, broker)
    finally:
        broker.process.kill()


def producer_of(
    trial: Trial, answers: dict[bytes, TransactionState], asked: list[bytes]
) -> TransactionProducer:
    async def on_check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return answers.get(message.body, TransactionState.UNKNOWN)

    return TransactionProducer(
        f"producers-{trial.topic}",
        on_check=on_check,
        namesrv=trial.site.name_server,
        send_timeout_ms=PATIENCE_MS,
        call_timeout_ms=PATIENCE_MS,
    )


async def leave_open(producer: TransactionProducer, topic: str, *bodies: bytes) -> None:
    for body in bodies:
        async with producer.transaction(Message(topic, body)) as transaction:
            transaction.leave_open()


async def marked_as_ended(trial: Trial, marks: int) -> None:
    """Return once the log has so many marks: official brokers lose those that wait for a batch."""
    await beside(
        wire.wait_above,
        trial.site.broker.address,
        HALF_DONE_TOPIC,
        0,
        marks - 1,
        timeout_s=CLIENT_TIMEOUT_S,
    )


@pytest.mark.scenario("site", "Python transactions: committed, rolled back, asked about")
async def test_transactions_end_as_the_program_says(trial: Trial) -> None:
    asked: list[bytes] = []
    answers = {
        b"commit when asked": TransactionState.COMMIT,
        b"roll back when asked": TransactionState.ROLLBACK,
    }
    _, inbox = await trial.push()
    async with producer_of(trial, answers, asked) as producer:
        async with producer.transaction(Message(trial.topic, b"committed", keys="k")) as sent:
            pass
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message(trial.topic, b"rolled back")):
                raise ZeroDivisionError
        await leave_open(producer, trial.topic, *answers)

        received = {message.body: message for message in await inbox.wait_exactly(2)}

    assert set(received) == {b"committed", b"commit when asked"}
    assert received[b"committed"].message_id == sent.message_id
    assert set(asked) >= {b"commit when asked"}


@pytest.mark.scenario("broker", "a store changes hands with open transactions")
@pytest.mark.parametrize("broker", BROKERS, ids=str)
@pytest.mark.parametrize("first", ["ours", "official"])
async def test_a_store_changes_hands_with_open_transactions(
    broker: Peer,
    first: str,
    start_name_server: StartNameServer,
    new_folder: Callable[[str], Path],
    new_topic: str,
) -> None:
    lines = [OUR_LINE, broker.line] if first == "ours" else [broker.line, OUR_LINE]
    name_server = start_name_server().address
    folder = new_folder(f"hand-over-{first}-{broker.line}")
    asked: list[bytes] = []

    before = at_line(lines[0], folder, name_server, NO_CHECKS)
    before.process.start()
    before.wait_ready()
    async with Trial(Site(lines[0], name_server, before), new_topic) as trial:
        await trial.create_topic(new_topic, queues=1)
        async with producer_of(trial, {}, asked) as producer:
            async with producer.transaction(Message(new_topic, b"committed before")):
                pass
            await marked_as_ended(trial, 1)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(Message(new_topic, b"rolled back before")):
                    raise ZeroDivisionError
            await marked_as_ended(trial, 2)
            await leave_open(producer, new_topic, b"commit", b"roll back")
    await beside(before.process.kill if first == "ours" else before.process.stop)

    after = at_line(lines[1], folder, name_server)
    after.process.start()
    after.wait_ready()
    try:
        async with Trial(Site(lines[1], name_server, after), new_topic) as trial:
            _, inbox = await trial.push()
            answers = {
                b"commit": TransactionState.COMMIT,
                b"roll back": TransactionState.ROLLBACK,
                # Would show if it were asked about again.
                b"rolled back before": TransactionState.COMMIT,
                b"committed before": TransactionState.COMMIT,
            }
            # It sends nothing, and is asked all the same.
            async with producer_of(trial, answers, asked):
                received = await inbox.wait_exactly(2)
    finally:
        after.process.kill()

    assert sorted(message.body for message in received) == [b"commit", b"committed before"]
