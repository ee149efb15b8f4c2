"""Hooks of a producer: the kinds of hooks, and the effect of their errors."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from orbitmq.client.aio.sending.send_hooks import SendContext, SendHooks
from orbitmq.client.core.sending.send_plan import SendMode
from orbitmq.errors import OrbitError
from orbitmq.model.messages import Message
from orbitmq.model.queues import MessageQueue


def context_of() -> SendContext:
    return SendContext(
        group="g",
        message=Message("t", b"x"),
        message_id="A1",
        queue=MessageQueue(broker_name="b", queue_id=0, topic="t"),
        address="127.0.0.1:1",
        mode=SendMode.AWAITED,
        namespace="",
        attempt=1,
    )


class Sees:
    def __init__(self, heard: list[str], *, failing: bool = False) -> None:
        self._heard = heard
        self._failing = failing

    def before_send(self, context: SendContext) -> None:
        self._heard.append(f"before {context.message_id}")
        if self._failing:
            raise ValueError("broken hook")

    def after_send(self, context: SendContext) -> None:
        self._heard.append(f"after {context.result}")
        if self._failing:
            raise ValueError("broken hook")


class Forbids:
    def check_forbidden(self, context: SendContext) -> None:
        raise OrbitError(f"{context.queue.topic} is closed")


class Both(Sees):
    def check_forbidden(self, context: SendContext) -> None:
        self._heard.append(f"check {context.message_id}")


def test_without_hooks_there_is_nothing_to_run() -> None:
    assert not SendHooks(())


def test_one_object_may_be_both_kinds_of_hook() -> None:
    heard: list[str] = []
    hooks = SendHooks([Both(heard)])

    hooks.before(context_of())
    hooks.after(context_of())

    assert hooks
    assert heard == ["check A1", "before A1", "after None"]


def test_a_hook_that_fails_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    hooks = SendHooks([Sees(heard, failing=True), Sees(heard)])

    with caplog.at_level(logging.ERROR):
        hooks.before(context_of())
        hooks.after(context_of())

    assert heard == ["before A1", "before A1", "after None", "after None"]
    assert [record.message for record in caplog.records] == [
        "hook failed before a send topic=t",
        "hook failed after a send topic=t",
    ]


def test_a_check_that_forbids_raises_before_other_hooks_run() -> None:
    heard: list[str] = []
    hooks = SendHooks([Sees(heard), Forbids()])

    with pytest.raises(OrbitError, match="t is closed"):
        hooks.before(context_of())

    assert heard == []


def test_an_object_that_is_not_a_hook_is_refused() -> None:
    wrong: Any = object()

    with pytest.raises(TypeError, match="is not a producer hook"):
        SendHooks([wrong])
