"""One test's use of an official client at our broker: its topic, its producer, its consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tests.interop.drivers import CONSUME_TIMEOUT_MS, Driver, Outcome, Received
from tests.interop.peers import OurCluster


@dataclass(slots=True)
class Exchange:
    """Names everything after a topic of the test's own, and closes what it opened."""

    client: Driver
    cluster: OurCluster
    topic: str
    _producers: set[str] = field(default_factory=set)
    _consumers: list[str] = field(default_factory=list)

    @property
    def name_server(self) -> str:
        """Where the clients ask."""
        return self.cluster.name_server.address

    @property
    def group(self) -> str:
        """The consumer group of the test."""
        return f"group-{self.topic}"

    def create_topic(self, *, queues: int = 4) -> None:
        """Create the topic on our broker."""
        self.cluster.broker.create_topic(self.topic, queues=queues)

    def open_producer(self, **options: object) -> None:
        """Start the producer with options; without this the first post starts it."""
        self.client.open_producer(self.topic, self.name_server, **options)
        self._producers.add(self.topic)

    def post(self, *messages: Mapping[str, object], mode: str = "sync") -> list[Outcome]:
        """Send messages to the topic."""
        if self.topic not in self._producers:
            self.open_producer()
        return self.client.post(
            self.topic, [{"topic": self.topic, **message} for message in messages], mode=mode
        )

    def subscribe(self, consumer: str = "a", *, topic: str = "", **options: object) -> None:
        """Start a consumer; several of a test have names of their own."""
        name = f"{self.topic}-{consumer}"
        settings = {"group": self.group, **options}
        self.client.open_consumer(name, self.name_server, topic or self.topic, **settings)  # type: ignore[arg-type]  # options of any kind
        self._consumers.append(name)

    def received(
        self, count: int, consumer: str = "a", *, timeout_ms: int = CONSUME_TIMEOUT_MS
    ) -> list[Received]:
        """All that a consumer has received, once there are `count` or time is up."""
        return self.client.received(f"{self.topic}-{consumer}", count, timeout_ms=timeout_ms)

    def leave(self, consumer: str = "a") -> None:
        """Shut one consumer down."""
        name = f"{self.topic}-{consumer}"
        self._consumers.remove(name)
        self.client.close_consumer(name)

    def close(self) -> None:
        """Have everything shut down: what was received, nobody looks at any more."""
        self.client.close_later(consumers=self._consumers, producers=self._producers)


MakeExchange = Callable[[OurCluster], Exchange]


def bodies(count: int, *, first: int = 0) -> list[dict[str, object]]:
    """Messages that are told apart by their bodies alone."""
    return [{"body": f"message {number}"} for number in range(first, first + count)]


def texts(messages: Iterable[Received]) -> list[str]:
    """The bodies, sorted: messages of different queues come in any order."""
    return sorted(message.body for message in messages)
