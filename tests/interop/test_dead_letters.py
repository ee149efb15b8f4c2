"""Dead letters of Java's consumers and of ours, listed and sent again at every broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbitmq.client import REJECT, Message, Reject
from tests.interop.command_lines import CommandLines, Row, reaches
from tests.interop.drivers import JavaDriver
from tests.interop.python_trials import Trial
from tests.waiting import beside

pytestmark = pytest.mark.interop


@pytest.fixture
async def commands(trial: Trial, drivers: Callable[[str], JavaDriver]) -> CommandLines:
    """Our command line; the JVM of the other is started outside the loop."""
    return await beside(CommandLines, trial, drivers)


@pytest.mark.scenario("site", "dlq: dead letters of a Java consumer, listed and sent again")
@pytest.mark.parametrize("kind", ["push", "orderly"])
async def test_dead_letters_of_java_are_listed_and_sent_again(
    trial: Trial, commands: CommandLines, drivers: Callable[[str], JavaDriver], kind: str
) -> None:
    java = await beside(drivers, "v5")
    consumer, group = f"dead-{trial.topic}", f"{trial.group}-java"
    producer = await trial.producer()
    await producer.send(Message(trial.topic, "żółć", keys=["poison"], properties={"mine": "kept"}))
    await beside(
        java.open_consumer,
        consumer,
        trial.site.name_server,
        trial.topic,
        group=group,
        kind=kind,
        attempts_max=1,
        failures=99,
    )

    async def listed() -> list[Row]:
        rows = await commands.rows("dlq", "list")
        return [row for row in rows if row["group"] == group and row["dead_letters"] == 1]

    async def is_listed() -> bool:
        return bool(await listed())

    await reaches(True, is_listed)
    await beside(java.close_consumer, consumer)
    (row,) = await commands.rows("dlq", "list", group, "--key", "poison")
    await trial.create_topic(f"{trial.topic}-again")
    await commands.ours("dlq", "resend", group, "--to", f"{trial.topic}-again", "--yes")
    _, inbox = await trial.push(topic=f"{trial.topic}-again", group=f"{trial.group}-again")
    (again,) = await inbox.wait_exactly(1)

    assert (row["topic"], row["keys"]) == (trial.topic, ["poison"])
    assert row["cause"].startswith("failed ")
    assert (again.body.decode(), again.keys) == ("żółć", ("poison",))
    assert again.properties["mine"] == "kept"
    assert again.message_id != row["message_id"]
    assert again.reconsume_times == 0


@pytest.mark.scenario("site", "dlq: what a Python listener rejects, with its reason on our broker")
@pytest.mark.parametrize("ordered", [False, True])
async def test_what_python_rejects_is_a_dead_letter(
    trial: Trial, commands: CommandLines, *, ordered: bool
) -> None:
    producer = await trial.producer()
    for body in ("good", "bad", "worse"):
        await producer.send(Message(trial.topic, body))
    verdicts = {b"bad": Reject("no customer"), b"worse": REJECT}
    _, inbox = await trial.push(verdict=lambda message: verdicts.get(message.body), ordered=ordered)
    await inbox.wait(3)

    async def causes() -> list[str]:
        rows = await commands.rows("dlq", "list")
        if trial.group not in {row["group"] for row in rows if row["dead_letters"] == 2}:
            return []
        return sorted(row["cause"] for row in await commands.rows("dlq", "list", trial.group))

    kept = trial.site.line == "ours"
    expected = ["no customer", "rejected"] if kept else ["failed once", "failed once"]
    await reaches(expected, causes)
    assert len(inbox.messages) == 3
