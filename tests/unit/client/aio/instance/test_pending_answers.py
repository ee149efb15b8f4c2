"""Requests by message get their answers."""

from __future__ import annotations

import pytest

from orbitmq.client.aio.instance.pending_answers import PendingAnswers
from orbitmq.client.core.request_reply import received_reply
from orbitmq.errors import StateError
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.answers import PushAnswer

ANSWER = received_reply(
    PushAnswer(
        producer_group="g",
        topic="T",
        template_topic="TBW102",
        template_queues=4,
        queue_id=0,
        system_flag=0,
        born_timestamp_ms=Long(1),
        flag=0,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        store_timestamp_ms=Long(2),
    ),
    b"yes",
    3,
)


async def test_an_answer_reaches_its_waiter() -> None:
    answers = PendingAnswers()
    first, second = answers.expect("1"), answers.expect("2")

    assert answers.deliver("2", ANSWER)

    assert (await second).body == b"yes"
    assert not first.done()
    assert len(answers) == 1
    answers.fail_all()
    with pytest.raises(StateError, match="stopped before the reply to 1 arrived"):
        await first


async def test_an_answer_that_nobody_waits_for_is_not_delivered() -> None:
    answers = PendingAnswers()
    _ = answers.expect("1")
    answers.forget("1")
    answers.forget("1")

    assert not answers.deliver("1", ANSWER)


async def test_one_id_has_one_waiter() -> None:
    answers = PendingAnswers()
    _ = answers.expect("1")

    with pytest.raises(StateError, match="'1' is already pending"):
        _ = answers.expect("1")


async def test_a_waiter_that_gave_up_gets_nothing() -> None:
    answers = PendingAnswers()
    given_up = answers.expect("1")
    given_up.cancel()

    assert not answers.deliver("1", ANSWER)
    assert len(answers) == 0
