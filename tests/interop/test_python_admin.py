"""The official mqadmin watches and steers consumers of ours, at our broker and at official ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from orbitmq.cli.main import command_for
from orbitmq.client import Message
from tests.interop.command_lines import PATIENT
from tests.interop.drivers import NOTHING_CONSUMED, JavaDriver
from tests.interop.peers import NameServer
from tests.interop.python_trials import Trial, numbered, sorted_bodies
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import beside, until_reached

pytestmark = pytest.mark.interop

MESSAGES = 12
PROGRESS_TIMEOUT_S = CLIENT_TIMEOUT_S


def tool_of(trial: Trial, drivers: Callable[[str], JavaDriver]) -> Callable[..., str]:
    """mqadmin of the broker's own line; of the newest where the broker is ours."""
    admin = drivers(trial.site.line if trial.site.line != "ours" else "v5")

    def run(*arguments: str, complaint: str = "") -> str:
        return admin.mqadmin(*arguments, "-n", trial.site.name_server, complaint=complaint)

    return run


@pytest.mark.scenario("site", "mqadmin: consumerProgress, consumerConnection, consumerStatus")
async def test_consumer_is_watched(trial: Trial, drivers: Callable[[str], JavaDriver]) -> None:
    run = await beside(tool_of, trial, drivers)
    producer = await trial.producer()
    _, inbox = await trial.push(persist_interval_ms=500)
    for body in numbered(MESSAGES):
        await producer.send(Message(trial.topic, body))
    await inbox.wait(MESSAGES)

    def consumed() -> int:
        printed = run("consumerProgress", "-g", trial.group, complaint=NOTHING_CONSUMED)
        rows = [line.split() for line in printed.splitlines() if line.startswith(trial.topic)]
        return sum(int(columns[4]) for columns in rows)

    await until_reached(
        lambda: consumed() == MESSAGES, timeout_s=PROGRESS_TIMEOUT_S, what="all consumed"
    )
    connection = await beside(run, "consumerConnection", "-g", trial.group)
    (client_id,) = await trial.members(1)
    overview = await beside(run, "consumerStatus", "-g", trial.group)
    status = await beside(run, "consumerStatus", "-g", trial.group, "-i", client_id, "-s")

    assert client_id in connection
    assert trial.topic in connection
    assert "CONSUME_PASSIVELY" in connection
    assert "Same subscription in the same group of consumer" in overview
    assert "Rebalance OK" in overview
    assert "#Consumer Properties#" in status
    assert "#Consumer Offset#" in status
    assert "#Consumer RT&TPS#" in status
    offsets = status.partition("#Consumer Offset#")[2].partition("#Consumer MQ Detail#")[0]
    rows = [line.split() for line in offsets.splitlines() if line.startswith(trial.topic)]
    assert sorted((int(row[2]), int(row[3])) for row in rows) == [(n, 3) for n in range(4)]


@pytest.mark.scenario("site", "mqadmin: queryMsgById hands a message to a consumer")
async def test_message_is_consumed_by_hand(
    trial: Trial, drivers: Callable[[str], JavaDriver]
) -> None:
    run = await beside(tool_of, trial, drivers)
    producer = await trial.producer()
    _, inbox = await trial.push()
    (client_id,) = await trial.members(1)
    sent = await producer.send(Message(trial.topic, "again", keys=["by-hand"]))
    await inbox.wait(1)

    topic = ("-t", trial.topic) if trial.site.line != "v4" else ()
    printed = await beside(
        run,
        "queryMsgById",
        *topic,
        *("-i", sent.offset_message_id, "-g", trial.group, "-d", client_id),
    )
    received = await inbox.wait_exactly(2)

    assert "CR_SUCCESS" in printed
    assert [m.body for m in received] == [b"again"] * 2
    assert {m.message_id for m in received} == {sent.message_id}


@pytest.mark.scenario("site", "mqadmin: resetOffsetByTime; the admin client: consume status")
async def test_consumer_goes_back_when_its_offsets_are_reset(
    trial: Trial, drivers: Callable[[str], JavaDriver]
) -> None:
    run = await beside(tool_of, trial, drivers)
    producer = await trial.producer()
    _, inbox = await trial.push(persist_interval_ms=500)
    (client_id,) = await trial.members(1)
    for body in numbered(MESSAGES):
        await producer.send(Message(trial.topic, body))
    first_ms = min(m.store_ms for m in await inbox.wait(MESSAGES))

    everything = {client_id: {str(queue_id): MESSAGES // 4 for queue_id in range(4)}}
    asked = (trial.site.name_server, trial.topic, trial.group)
    await until_reached(
        lambda: drivers("v5").consume_status(*asked) == everything,
        timeout_s=PROGRESS_TIMEOUT_S,
        what="all consumed, as the client says",
    )
    # RocketMQ's brokers refuse to reset a queue that has no committed offset yet.
    await trial.committed(MESSAGES)
    printed = await beside(
        run, "resetOffsetByTime", "-g", trial.group, "-t", trial.topic, "-s", str(first_ms)
    )
    received = await inbox.wait(2 * MESSAGES)

    assert trial.site.broker.name in printed
    assert sorted_bodies(received) == sorted(numbered(MESSAGES) * 2)


@pytest.mark.scenario("site", "mqadmin: finds by key what Python sent")
async def test_messages_are_found(trial: Trial, drivers: Callable[[str], JavaDriver]) -> None:
    run = await beside(tool_of, trial, drivers)
    producer = await trial.producer()
    sent = await producer.send(Message(trial.topic, "found", keys=["first-key", "ключ"]))

    # Not by its unique id: the tool's command for that works once in a process.
    for key in ("first-key", "ключ"):
        search = ("queryMsgByKey", "-t", trial.topic, "-k", key)
        await until_reached(
            lambda search=search: sent.message_id in run(*search),  # type: ignore[misc]  # bound now
            timeout_s=PROGRESS_TIMEOUT_S,
            what=f"found by {key}",
        )


@pytest.mark.usefixtures("brokers")
def test_official_brokers_without_timers_have_no_pending_messages(
    name_servers: dict[str, NameServer],
) -> None:
    line = ["message", "pending", "list", "-n", name_servers["official"].address]

    result = CliRunner(env=PATIENT).invoke(command_for(line), line)

    assert (result.exit_code, result.stdout.strip()) == (0, "no message is pending")
