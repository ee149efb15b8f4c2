"""Request and reply between our clients and official ones, at our broker and at official ones."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client import Message, Reply
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.errors import ReplyNotDeliveredError, RequestTimeoutError
from orbitmq.model import property_names
from tests.interop.drivers import Driver
from tests.interop.python_trials import PATIENCE_MS, Trial
from tests.waiting import beside

pytestmark = pytest.mark.interop

# Long enough for a broker to store a request, on a machine that stands still for a while.
LATE_MS = 6000
BODIES = ["one", "żółć 🚀", "x" * 20_000]


def _reply(message: ReceivedMessage) -> Reply:
    return Reply(f"re: {message.body.decode()}", properties={"replier": "python"})


@pytest.mark.scenario("site", "Python requests, Python, Java and Go reply")
async def test_python_gets_the_replies_of_every_client(
    trial: Trial, official_clients: dict[str, Driver]
) -> None:
    producer = await trial.producer()

    async def ask(topic: str, replier: str) -> None:
        replies = await asyncio.gather(
            *(producer.request(Message(topic, body), timeout_ms=PATIENCE_MS) for body in BODIES)
        )
        assert [reply.body.decode() for reply in replies] == [f"re: {body}" for body in BODIES]
        assert {reply.properties["replier"] for reply in replies} == {replier}

    async def ask_official(line: str) -> None:
        topic = f"{trial.topic}-{line}"
        await trial.create_topic(topic)
        driver = official_clients[line]
        await beside(
            driver.open_replier, topic, trial.site.name_server, topic, group=f"group-{topic}"
        )
        await ask(topic, "go" if line == "go" else "java")
        assert await beside(driver.close_replier, topic) == []

    await trial.push(verdict=_reply)
    await asyncio.gather(ask(trial.topic, "python"), *map(ask_official, official_clients))


@pytest.mark.scenario("site", "Java and Go request, Python replies")
async def test_official_clients_get_the_replies_of_python(
    trial: Trial, official_clients: dict[str, Driver]
) -> None:
    await trial.push(verdict=_reply)

    async def ask(driver: Driver) -> None:
        replies = await beside(
            driver.request,
            trial.site.name_server,
            trial.topic,
            BODIES,
            timeout_ms=PATIENCE_MS,
        )
        assert [reply.body for reply in replies] == [f"re: {body}" for body in BODIES]
        assert {reply.properties["replier"] for reply in replies} == {"python"}
        for reply in replies:
            assert {
                property_names.CORRELATION_ID,
                property_names.REPLY_TO_CLIENT,
                property_names.REPLY_PUSHED_MS,
            } <= reply.properties.keys()

    await asyncio.gather(*map(ask, official_clients.values()))


@pytest.mark.scenario("site", "Java and Go request and reply among themselves")
async def test_official_clients_request_and_reply(
    trial: Trial, official_clients: dict[str, Driver]
) -> None:
    async def exchange(line: str, driver: Driver) -> None:
        topic = f"{trial.topic}-{line}"
        await trial.create_topic(topic)
        await beside(
            driver.open_replier, topic, trial.site.name_server, topic, group=f"group-{topic}"
        )
        replies = await beside(
            driver.request, trial.site.name_server, topic, BODIES, timeout_ms=PATIENCE_MS
        )
        assert [reply.body for reply in replies] == [f"re: {body}" for body in BODIES]
        await beside(driver.close_replier, topic)

    await asyncio.gather(*(exchange(*pair) for pair in official_clients.items()))


@pytest.mark.scenario("site", "a late reply to Python is an error for Java and Python")
async def test_a_replier_learns_that_its_reply_is_late(
    trial: Trial, official_clients: dict[str, Driver]
) -> None:
    producer = await trial.producer()
    _, inbox = await trial.push()
    java = official_clients["v5"]
    await beside(
        java.open_replier,
        trial.topic,
        trial.site.name_server,
        trial.topic,
        group=f"{trial.group}-java",
        pause_ms=LATE_MS,
    )

    with pytest.raises(RequestTimeoutError, match="a broker has stored the request"):
        await producer.request(Message(trial.topic, "hello"), timeout_ms=LATE_MS - 1000)
    (request,) = await inbox.wait(1)
    with pytest.raises(ReplyNotDeliveredError, match="push reply message to"):
        await producer.reply(request, "late")

    errors: list[str] = await beside(java.close_replier, trial.topic)
    assert len(errors) == 1
    assert "push reply message to" in errors[0]
