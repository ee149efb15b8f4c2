"""Load of official Java clients that goes on whatever happens to brokers."""

from __future__ import annotations

from typing import Any

from tests.interop.drivers import CALL_TIMEOUT_S, JavaDriver
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import wait_until


class Load:
    """Producers that repeat a message until it is acknowledged, and ordered consumers.

    They look for routes twice a second, and each producer has one queue of one broker.
    """

    def __init__(self, driver: JavaDriver, topic: str) -> None:
        self._driver = driver
        self.topic = topic

    @property
    def group(self) -> str:
        """The group of the consumers."""
        return f"group-{self.topic}"

    def start(
        self,
        name_server: str,
        broker_name: str,
        *,
        queues: int,
        producers: int,
        consumers: int,
    ) -> None:
        """Start all clients."""
        self._driver.call(
            "load_start",
            load=self.topic,
            namesrv=name_server,
            topic=self.topic,
            group=self.group,
            broker=broker_name,
            queues=queues,
            producers=producers,
            consumers=consumers,
            pause_ms=20,
        )

    def progress(self, what: str) -> int:
        """How many messages were `acked` or `received` so far, or sends `failed`."""
        return int(self._driver.call("load_progress", load=self.topic)[what])

    def wait_for_more(self, what: str, count: int) -> None:
        """Return once there are so many more of them than now."""
        target = self.progress(what) + count
        wait_until(
            lambda: self.progress(what) >= target,
            timeout_s=CLIENT_TIMEOUT_S,
            what=f"{target} messages {what}",
        )

    def stop(self, *, timeout_ms: int) -> dict[str, Any]:
        """Stop sending, wait until everything acknowledged is received, and return the verdict."""
        return self._driver.call(
            "load_stop",
            call_timeout_s=timeout_ms / 1000 + CALL_TIMEOUT_S,
            load=self.topic,
            timeout_ms=timeout_ms,
        )
