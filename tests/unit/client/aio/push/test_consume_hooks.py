"""Hooks around listener calls; what they get is tested with the calls themselves."""

from __future__ import annotations

import pytest

from orbitmq.client.aio.push.consume_hooks import ConsumeContext, notify_after, notify_before
from tests.unit.client.aio.received import QUEUE, several


class Recorder:
    def __init__(self, name: str, heard: list[str]) -> None:
        self.name = name
        self.heard = heard

    def before_consume(self, _context: ConsumeContext) -> None:
        self.heard.append(f"before {self.name}")

    def after_consume(self, _context: ConsumeContext) -> None:
        self.heard.append(f"after {self.name}")
        if self.name == "first":
            raise ValueError("the first hook fails")


def test_every_hook_is_called_even_if_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []
    hooks = [Recorder("first", heard), Recorder("second", heard)]
    context = ConsumeContext(group="billing", queue=QUEUE, messages=several(0, 1), ordered=True)

    notify_before(hooks, context)
    notify_after(hooks, context)

    assert heard == ["before first", "before second", "after first", "after second"]
    assert "the first hook fails" in caplog.text
