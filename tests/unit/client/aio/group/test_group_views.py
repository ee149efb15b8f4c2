"""Fetching topics and members, with some of them unreachable."""

from __future__ import annotations

import pytest

from orbitmq.client.aio.group.group_views import REPEAT_MS, GroupViews
from orbitmq.client.core.consuming.allocation import averagely
from orbitmq.client.core.consuming.assignment import Membership
from orbitmq.clock import ManualClock
from orbitmq.model.names import retry_topic
from orbitmq.model.subscriptions import BROADCASTING, CLUSTERING, MessageModel
from tests.unit.client.aio.simulated_brokers import SimulatedBrokers, queues


@pytest.fixture
def brokers() -> SimulatedBrokers:
    return SimulatedBrokers(orders=queues(2), returns=queues(1, "returns", broker_name="broker-b"))


def views(
    brokers: SimulatedBrokers, model: MessageModel = CLUSTERING, clock: ManualClock | None = None
) -> GroupViews:
    member = Membership(group="shippers", client_id="c1", allocation=averagely, model=model)
    return GroupViews(member, brokers, brokers, clock or ManualClock())


async def test_queues_and_members_of_all_topics_are_seen(brokers: SimulatedBrokers) -> None:
    view, is_complete = await views(brokers).fetch(["orders", "returns"])

    assert is_complete
    assert view.subscribed == ["orders", "returns"]
    assert view.queues == brokers.topics
    assert view.client_ids == {"orders": ["c1"], "returns": ["c1"]}


async def test_a_broadcasting_consumer_asks_for_no_members(brokers: SimulatedBrokers) -> None:
    _, is_complete = await views(brokers, BROADCASTING).fetch(["orders"])

    assert is_complete
    assert brokers.calls == []


async def test_a_missing_topic_is_logged_once_and_does_not_make_the_view_incomplete(
    brokers: SimulatedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    seen = views(brokers)

    await seen.fetch(["absent", "orders"])
    view, is_complete = await seen.fetch(["absent", "orders"])

    assert is_complete
    assert view.queues["absent"] == []
    assert view.client_ids["orders"] == ["c1"]
    assert caplog.text.count("topic=absent") == 1


async def test_a_misspelt_topic_is_logged_with_the_nearest_names_and_again_after_a_while(
    brokers: SimulatedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    seen = views(brokers, clock=clock)
    brokers.topics["%RETRY%orderz"] = []

    await seen.fetch(["orderz"])
    await clock.advance(REPEAT_MS - 1)
    await seen.fetch(["orderz"])
    assert caplog.messages == [
        "nothing is consumed, the topic does not exist; waiting for it group=shippers topic=orderz "
        "hint=did you mean orders?"
    ]

    await clock.advance(1)
    await seen.fetch(["orderz"])
    assert len(caplog.messages) == 2


async def test_a_missing_retry_topic_is_not_logged(
    brokers: SimulatedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    await views(brokers).fetch([retry_topic("shippers")])

    assert caplog.text == ""


async def test_members_that_cannot_be_fetched_leave_the_view_incomplete(
    brokers: SimulatedBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    seen = views(brokers)
    brokers.down.add("broker-b")

    view, is_complete = await seen.fetch(["orders", "returns"])
    assert not is_complete
    assert view.client_ids == {"orders": ["c1"], "returns": []}

    brokers.down.clear()
    assert (await seen.fetch(["orders", "returns"]))[1]
    brokers.down.add("broker-b")
    await seen.fetch(["orders", "returns"])
    assert caplog.text.count("topic=returns") == 2


async def test_a_name_server_that_is_down_leaves_the_view_incomplete(
    brokers: SimulatedBrokers,
) -> None:
    brokers.down.add("name server")

    view, is_complete = await views(brokers).fetch(["orders"])

    assert not is_complete
    assert view.queues == {"orders": []}
