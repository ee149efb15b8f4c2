"""Members of a consumer group, of any kind: consumers of ours and official ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from orbitmq.client.aio import PushConsumer
from tests.interop.drivers import Driver, Received
from tests.interop.python_trials import Inbox, Trial
from tests.waiting import beside


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as one member of the group saw it."""

    body: str
    queue_id: int
    received_ms: int


def _seen(received: Sequence[Received]) -> list[Seen]:
    return [Seen(m.body, m.queue_id, m.received_ms) for m in received]


class Member(Protocol):
    """A consumer of the group, of any kind."""

    name: str

    async def seen(self) -> list[Seen]: ...

    async def leave(self) -> None: ...


class OfficialMember:
    """A consumer in a driver's process."""

    def __init__(self, driver: Driver, trial: Trial, name: str) -> None:
        self.name = name
        self._driver = driver
        self._consumer = f"{trial.topic}-{name}"
        self._trial = trial
        self._left: list[Seen] | None = None

    async def join(self, *, kind: str) -> None:
        await beside(
            self._driver.open_consumer,
            self._consumer,
            self._trial.site.name_server,
            self._trial.topic,
            group=self._trial.group,
            kind=kind,
        )
        self._trial.at_end(self.leave)

    async def seen(self) -> list[Seen]:
        if self._left is not None:
            return self._left
        return _seen(await beside(self._driver.received, self._consumer, 0))

    async def leave(self) -> None:
        if self._left is None:
            before = await self.seen()
            closed = await beside(self._driver.close_consumer, self._consumer)
            # The Go driver does not say what came until the end.
            self._left = _seen(closed) or before


class PythonMember:
    """A consumer of ours, in this process."""

    def __init__(self, name: str, consumer: PushConsumer, inbox: Inbox) -> None:
        self.name = name
        self._consumer = consumer
        self._inbox = inbox

    async def seen(self) -> list[Seen]:
        return [
            Seen(m.body.decode(), m.queue_id, received_ms)
            for m, received_ms in zip(self._inbox.messages, self._inbox.received_ms, strict=True)
        ]

    async def leave(self) -> None:
        await self._consumer.stop()
