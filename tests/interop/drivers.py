"""The official clients, driven through a child process that takes JSON lines.

Threads: each driver has one thread that reads answers; any thread may call.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.interop.building import GO_DRIVER
from tests.interop.official import java_command
from tests.interop.processes import ChildProcess
from tests.interop.timeouts import CLIENT_TIMEOUT_S

CALL_TIMEOUT_S = 180
CONSUME_TIMEOUT_MS = 1000 * CLIENT_TIMEOUT_S

# What mqadmin says when a server took longer than it waits, and how often it is asked then.
TOO_SLOW = "RemotingTimeoutException"
ADMIN_TRIES = 5
# What these do they would do twice.
SENDING_COMMANDS = frozenset({"sendMessage", "checkMsgSendRT"})
# What mqadmin says of a group that has committed nothing yet.
NOTHING_CONSUMED = "offset table is empty"

# Where a group without offsets starts.
FIRST = "CONSUME_FROM_FIRST_OFFSET"
LAST = "CONSUME_FROM_LAST_OFFSET"
TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class DriverError(Exception):
    """A scenario failed in the client; the message has the client's own words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a producer was told, one entry per message."""

    message_ids: list[str]
    queue_ids: list[int]
    statuses: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One message as a consumer saw it."""

    topic: str
    body: str
    body_bytes: int
    # SHA-256 of the body, so that it can be compared byte for byte.
    body_digest: str
    tags: str | None
    keys: str | None
    flag: int
    record_bytes: int
    properties: dict[str, str]
    message_id: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    born_ms: int
    stored_ms: int
    received_ms: int
    # Shown by the Java driver only.
    born_host: str = ""
    store_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A message that a Java producer is to send, written down."""

    body: str
    tags: str = ""
    keys: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    # Of a transaction: a name of Java's LocalTransactionState.
    ending: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one posted message: what the producer was told, or the client's error."""

    error: str = ""
    status: str = ""
    message_id: str = ""
    offset_message_id: str = ""
    broker: str = ""
    queue_id: int = -1
    queue_offset: int = -1
    recall_handle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied:
    """The reply that a requester got."""

    body: str
    properties: dict[str, str]


class Driver:
    """A running driver; one method per scenario."""

    def __init__(self, process: ChildProcess) -> None:
        self.process = process
        self._ids = itertools.count(1)
        self._waiting: dict[int, Future[dict[str, Any]]] = {}
        self._writing = threading.Lock()
        self._reader = threading.Thread(target=self._read, name=process.name, daemon=True)

    def start(self) -> Self:
        """Start the process, without waiting for it."""
        self.process.start()
        self._reader.start()
        return self

    def stop(self) -> None:
        """End the process; the clients in it do not say goodbye."""
        if self.process.is_running():
            self.process.popen.kill()
        # It meets the end of its stream before that is closed, which it would fail at.
        if self._reader.ident is not None:
            self._reader.join()
        self.process.kill()

    def call(
        self, scenario: str, *, call_timeout_s: float = CALL_TIMEOUT_S, **args: object
    ) -> dict[str, Any]:
        """Run one scenario and return its result."""
        answered: Future[dict[str, Any]] = Future()
        number = next(self._ids)
        self._waiting[number] = answered
        self._order(number, scenario, args)
        try:
            answer = answered.result(call_timeout_s)
        except TimeoutError:
            raise TimeoutError(
                f"{self.process.name} did not finish {scenario} within {call_timeout_s:.0f} s"
            ) from None
        finally:
            self._waiting.pop(number, None)
        if not answer["ok"]:
            raise DriverError(
                f"{self.process.name}: {scenario}: {answer['error']}\n{answer.get('trace', '')}"
            )
        result: dict[str, Any] = answer["result"]
        return result

    def produce(
        self,
        namesrv: str,
        topic: str,
        count: int,
        *,
        group: str = "interop-producers",
        tags: str = "",
        keys: str = "",
        body_bytes: int = 0,
    ) -> Sent:
        """Send messages `message 0`, `message 1`, … with a producer of their own."""
        return Sent(
            **self.call(
                "produce",
                namesrv=namesrv,
                topic=topic,
                count=count,
                group=group,
                tags=tags,
                keys=keys,
                body_bytes=body_bytes,
            )
        )

    def consume(
        self, namesrv: str, topic: str, count: int, *, group: str, expression: str = "*"
    ) -> list[Received]:
        """Receive messages with a push consumer, from the first on, until `count` have come."""
        result = self.call(
            "consume",
            call_timeout_s=CALL_TIMEOUT_S + CONSUME_TIMEOUT_MS / 1000,
            namesrv=namesrv,
            topic=topic,
            count=count,
            group=group,
            expression=expression,
            timeout_ms=CONSUME_TIMEOUT_MS,
        )
        return [Received(**message) for message in result["messages"]]

    def open_producer(self, producer: str, namesrv: str, **options: Any) -> None:
        """Start a producer that lives on under a name."""
        self.call(
            "open_producer",
            producer=producer,
            namesrv=namesrv,
            group=f"group-{producer}",
            **options,
        )

    def send(self, producer: str, topic: str, count: int) -> Sent:
        """Send messages with an open producer."""
        return Sent(**self.call("send", producer=producer, topic=topic, count=count))

    def post(
        self, producer: str, messages: Sequence[dict[str, object]], *, mode: str = "sync"
    ) -> list[Outcome]:
        """Send messages described one by one with an open producer; a batch has one outcome."""
        result = self.call("post", producer=producer, messages=messages, mode=mode)
        return [Outcome(**outcome) for outcome in result["outcomes"]]

    def request(
        self, namesrv: str, topic: str, bodies: Sequence[str], *, timeout_ms: int
    ) -> list[Replied]:
        """Send requests with a producer of their own, one after the other, and wait for replies."""
        result = self.call(
            "request", namesrv=namesrv, topic=topic, bodies=bodies, timeout_ms=timeout_ms
        )
        return [Replied(**reply) for reply in result["replies"]]

    def open_replier(
        self, replier: str, namesrv: str, topic: str, *, group: str, pause_ms: int = 0
    ) -> None:
        """Start a consumer that replies `re: …` to each message, after a pause."""
        self.call(
            "open_replier",
            replier=replier,
            namesrv=namesrv,
            topic=topic,
            group=group,
            pause_ms=pause_ms,
        )

    def close_replier(self, replier: str) -> list[str]:
        """Shut a replier down; return the errors that its replies ran into."""
        errors: list[str] = self.call("close_replier", replier=replier)["errors"]
        return errors

    def open_transactions(self, producer: str, namesrv: str, *, group: str, topic: str) -> None:
        """Start a producer of transactions; it commits each that a broker asks it about.

        Its first message, `hello` to `topic`, makes it known to the brokers.
        """
        self.call("open_transactions", producer=producer, namesrv=namesrv, group=group, topic=topic)

    def transact(self, producer: str, topic: str, messages: Sequence[Listed]) -> list[str]:
        """Send messages in transactions that end as each says; returns their ids."""
        listed = [asdict(message) for message in messages]
        ids: list[str] = self.call("transact", producer=producer, topic=topic, messages=listed)[
            "message_ids"
        ]
        return ids

    def recall(self, producer: str, topic: str, handle: str) -> str:
        """Take a message back with an open producer of 5.x; returns its id."""
        result = self.call("recall", producer=producer, topic=topic, handle=handle)
        return str(result["message_id"])

    def open_consumer(
        self,
        consumer: str,
        namesrv: str,
        topic: str,
        *,
        group: str,
        kind: str = "push",
        expression: str = "*",
        start: str = FIRST,
        **options: Any,
    ) -> None:
        """Start a consumer that lives on under a name: `push`, `orderly` or `lite`."""
        self.call(
            "open_consumer",
            consumer=consumer,
            namesrv=namesrv,
            topic=topic,
            group=group,
            kind=kind,
            expression=expression,
            start=start,
            **options,
        )

    def received(
        self, consumer: str, count: int, *, timeout_ms: int = CONSUME_TIMEOUT_MS
    ) -> list[Received]:
        """All that an open consumer has received, once there are `count` or time is up."""
        result = self.call(
            "received",
            call_timeout_s=CALL_TIMEOUT_S + timeout_ms / 1000,
            consumer=consumer,
            count=count,
            timeout_ms=timeout_ms,
        )
        return [Received(**message) for message in result["messages"]]

    def close_consumer(self, consumer: str) -> list[Received]:
        """Shut an open consumer down; the Java driver then has all that it received."""
        result = self.call("close_consumer", consumer=consumer)
        return [Received(**message) for message in result.get("messages", ())]

    def close_producer(self, producer: str) -> None:
        """Shut an open producer down."""
        self.call("close_producer", producer=producer)

    def close_later(self, *, consumers: Iterable[str] = (), producers: Iterable[str] = ()) -> None:
        """Have clients shut down without waiting for it."""
        for consumer in consumers:
            self._order(next(self._ids), "close_consumer", {"consumer": consumer})
        for producer in producers:
            self._order(next(self._ids), "close_producer", {"producer": producer})

    def _order(self, number: int, scenario: str, args: Mapping[str, object]) -> None:
        with self._writing:
            self.process.stdin.write(
                json.dumps({"id": number, "scenario": scenario, "args": args}) + "\n"
            )
            self.process.stdin.flush()

    def _read(self) -> None:
        for line in self.process.stdout:
            answer = json.loads(line)
            waiting = self._waiting.pop(answer["id"], None)
            if waiting is not None:
                waiting.set_result(answer)
        for waiting in list(self._waiting.values()):
            waiting.set_exception(DriverError(f"{self.process.name} ended\n{self.process.tail()}"))


class JavaDriver(Driver):
    """The Java client and tools of one line."""

    def __init__(self, line: str, folder: Path, properties: Sequence[str] = ()) -> None:
        self.line = line
        super().__init__(
            ChildProcess(
                f"Java driver {line}",
                java_command(
                    line, "client", folder, "org.orbitmq.interop.Driver", properties=properties
                ),
                folder,
                pipes=True,
            )
        )

    def mqadmin(self, *arguments: str, complaint: str = "") -> str:
        """Run one mqadmin command line and return what it printed to standard output.

        Fails when it complained on standard error, unless the complaint holds the text expected.
        A server that was too slow for the tool is asked again: it waits for three seconds only,
        and has no option for that.
        """
        tries_left = 1 if arguments[0] in SENDING_COMMANDS else ADMIN_TRIES
        while True:
            result = self.call("mqadmin", arguments=arguments)
            printed: str = result["stdout"]
            complained: str = result["stderr"]
            if not complained or (complaint and complaint in complained):
                return printed
            tries_left -= 1
            if not tries_left or TOO_SLOW not in complained:
                raise DriverError(f"mqadmin {' '.join(arguments)}\n{printed}{complained}")

    def produce_listed(
        self,
        namesrv: str,
        topic: str,
        messages: Sequence[Listed],
        *,
        batch: bool = False,
        compression: str = "ZLIB",
    ) -> dict[str, str]:
        """Send these messages; returns their ids, each with the one that names its offset."""
        sent = self.call(
            "produce_listed",
            namesrv=namesrv,
            topic=topic,
            group="interop-producers",
            messages=[asdict(message) for message in messages],
            batch=batch,
            compression=compression,
        )
        return dict(zip(sent["message_ids"], sent["offset_ids"], strict=True))

    def find(self, namesrv: str, topic: str, keys: Sequence[str]) -> dict[str, list[Received]]:
        """Ask a broker's index for the messages of each key."""
        found = self.call("find", namesrv=namesrv, topic=topic, keys=keys)
        return {key: [Received(**message) for message in found[key]] for key in keys}

    def view(self, namesrv: str, topic: str, ids: Sequence[str]) -> dict[str, Received]:
        """Ask a broker for messages by the ids that name their offsets."""
        seen = self.call("view", namesrv=namesrv, topic=topic, ids=ids)
        return {message_id: Received(**seen[message_id]) for message_id in ids}

    def consume_status(self, namesrv: str, topic: str, group: str) -> dict[str, dict[str, int]]:
        """How far each member of a group says it is: offsets by queue id, by client id."""
        return self.call("consume_status", namesrv=namesrv, topic=topic, group=group)

    def route(self, namesrv: str, topic: str) -> dict[str, Any]:
        """The route of a topic as the admin client sees it."""
        return self.call("route", namesrv=namesrv, topic=topic)


class GoDriver(Driver):
    """The Go client."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            ChildProcess(
                "Go driver",
                [str(GO_DRIVER)],
                folder,
                environment={"HOME": str(folder)},
                pipes=True,
            )
        )
