"""Records the golden bytes of `tests/compat/golden` from official RocketMQ processes.

Run by hand from the top of the repository, never in CI; it needs what the interop suite needs:

    python -m scripts.record_golden_bytes

A relay on 127.0.0.1 stands before an official name server, and another before a broker; they keep
every frame that brokers and clients exchange with them. What is kept is written as it was on the wire; ports, times and opaques
differ from run to run, so every recording replaces the whole folder.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command, decode_frame, request
from orbitmq.protocol.frame import Encoding, frame_end
from orbitmq.protocol.headers import Header, Long
from orbitmq.protocol.languages import Language
from orbitmq.protocol.requests.key_values import GetKeyValue, ListKeyValues, PutKeyValue
from orbitmq.protocol.requests.registration import RegisterBroker, encode_register_body
from orbitmq.protocol.requests.routing import (
    GetClusterView,
    GetRoute,
    ListClusterTopics,
    ListSystemTopics,
    ListTopics,
)
from tests.interop import building
from tests.interop.drivers import Driver, GoDriver, JavaDriver
from tests.interop.official import CLUSTER, OfficialBroker, OfficialNameServer
from tests.interop.processes import alive
from tests.waiting import wait_until

GOLDEN = Path(__file__).parents[1] / "tests" / "compat" / "golden"
TOPIC = "golden-topic"
BROKER = "broker-a"
KEPT_BYTES_MAX = 4 << 20
CONNECTIONS_MAX = 500
FRAME_FILE_BYTES_MAX = 8 << 10
CAPTURE_TIMEOUT_S = 60
SOCKET_TIMEOUT_S = 120

# How old and new peers ask: the Go client calls itself 4.5.2, OrbitMQ calls itself 5.3.3.
OLD_VERSION = 317
NEW_VERSION = 479

GROUP = "golden-group"
# What is kept of the talk between a client and a broker; not what names the client's machine.
BROKER_EXCHANGES = {
    "send": {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2},
    "committed-offset": {RequestCode.QUERY_CONSUMER_OFFSET},
    "pull": {RequestCode.PULL_MESSAGE},
}


@dataclass(slots=True)
class Stream:
    """What went one way over one connection."""

    content: bytearray = field(default_factory=bytearray)

    def frames(self) -> Iterator[bytes]:
        """Yield the whole frames kept so far."""
        content = bytes(self.content)
        start = 0
        while (end := frame_end(content, start)) and end <= len(content):
            yield content[start:end]
            start = end


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and the reply to it, as they were on the wire."""

    request: bytes
    reply: bytes


class Relay:
    """Stands before a server and keeps what passes.

    Threads: one accepts, two for each connection copy; the kept bytes are only added to.
    """

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._streams: list[tuple[Stream, Stream]] = []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.close()

    def exchanges(self) -> list[Exchange]:
        """List the requests that were answered, in the order of their connections."""
        found = []
        for requests, replies in list(self._streams):
            by_opaque = {decode_frame(frame).opaque: frame for frame in replies.frames()}
            found += [
                Exchange(frame, by_opaque[opaque])
                for frame in requests.frames()
                if (opaque := decode_frame(frame).opaque) in by_opaque
            ]
        return found

    def wait_for(self, wanted: Callable[[Command], bool], what: str) -> Exchange:
        """Return the first answered request of a sort, once there is one."""
        found: list[Exchange] = []

        def reached() -> bool:
            found[:] = [
                exchange for exchange in self.exchanges() if wanted(decode_frame(exchange.request))
            ]
            return bool(found)

        wait_until(reached, timeout_s=CAPTURE_TIMEOUT_S, what=what)
        return found[0]

    def _accept(self) -> None:
        while len(self._streams) < CONNECTIONS_MAX:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target, timeout=SOCKET_TIMEOUT_S)
            client.settimeout(SOCKET_TIMEOUT_S)
            streams = (Stream(), Stream())
            self._streams.append(streams)
            for source, sink, stream in (
                (client, server, streams[0]),
                (server, client, streams[1]),
            ):
                threading.Thread(target=_copy, args=(source, sink, stream), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket, stream: Stream) -> None:
    with source:
        try:
            while chunk := source.recv(65536):
                if len(stream.content) < KEPT_BYTES_MAX:
                    stream.content += chunk
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # One end is gone; what was kept until then is all there is.
            return


def main() -> None:
    """Record everything again."""
    building.build_java()
    building.build_go()
    shutil.rmtree(GOLDEN, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        for line in building.LINES:
            _record_line(line, Path(folder) / line)


def _record_line(line: str, folder: Path) -> None:
    server = f"java-{building.java_version(line, 'server')}"
    name_server = OfficialNameServer(line, folder / "name-server")
    name_server.process.start()
    name_server.wait_ready()
    relay = Relay(name_server.address)
    try:
        with _running_broker(line, folder / "json", relay, "forceRegister=false\n") as broker:
            broker.wait_ready()
            _save(server, "register-json", relay.wait_for(_is(RequestCode.REGISTER_BROKER), "103"))
            broker.create_topic(TOPIC)
            _record_replies(server, name_server.address)
            _record_clients(line, folder, relay)
            _record_broker(line, folder, broker.address)
            _save(
                server,
                "query-data-version-json",
                relay.wait_for(_is(RequestCode.QUERY_DATA_VERSION), "322"),
            )
        _save(server, "unregister-json", relay.wait_for(_is(RequestCode.UNREGISTER_BROKER), "104"))
        relay.close()

        relay = Relay(name_server.address)
        with _running_broker(line, folder / "binary", relay, binary=True):
            exchange = relay.wait_for(_is(RequestCode.REGISTER_BROKER), "103 with binary header")
            _save(server, "register-binary", exchange)
        relay.close()

        relay = Relay(name_server.address)
        with _running_broker(line, folder / "packed", relay, "compressedRegister=true\n"):
            exchange = relay.wait_for(_is(RequestCode.REGISTER_BROKER), "103 with compressed body")
            _save(server, "register-compressed", exchange)
    finally:
        relay.close()
        for process in alive():
            process.stop()


@contextmanager
def _running_broker(
    line: str, folder: Path, relay: Relay, settings: str = "", *, binary: bool = False
) -> Iterator[OfficialBroker]:
    broker = OfficialBroker(line, BROKER, folder, [relay.address])
    with (folder / "broker.conf").open("a") as file:
        file.write(settings)
    # Without it a 4.9 broker fails to unmap its files, and ends before it says goodbye.
    broker.process.command.insert(1, "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED")
    if binary:
        broker.process.command.insert(1, "-Drocketmq.serialize.type=ROCKETMQ")
    broker.process.start()
    try:
        yield broker
    finally:
        broker.process.stop()


def _record_replies(server: str, name_server: str) -> None:
    """Keep what the name server answers to old and new peers, and in the binary encoding."""
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": TOPIC}
    asked: list[tuple[str, Header, str]] = [
        ("route", GetRoute(topic=TOPIC), "old new binary"),
        ("route-missing", GetRoute(topic="no-such-topic"), "new binary"),
        ("clusters", GetClusterView(), "old new binary"),
        ("topics", ListTopics(), "old new"),
        ("cluster-topics", ListClusterTopics(cluster=CLUSTER), "new"),
        ("system-topics", ListSystemTopics(), "new"),
        ("put-key-value", PutKeyValue(**order, value=f"{BROKER}:4"), "new"),
        ("get-key-value", GetKeyValue(**order), "old new binary"),
        ("get-key-value-missing", GetKeyValue(namespace="none", key="none"), "new"),
        ("list-key-values", ListKeyValues(namespace="ORDER_TOPIC_CONFIG"), "old new"),
    ]
    for name, header, askers in asked:
        for asker in askers.split():
            request = Command(
                code=header.CODE,
                fields=header.encode(),
                opaque=7,
                version=OLD_VERSION if asker == "old" else NEW_VERSION,
                language=Language.GO if asker == "old" else Language.PYTHON,
                encoding=Encoding.BINARY if asker == "binary" else Encoding.JSON,
            )
            reply = _ask(name_server, request.encode())
            _save_frame(server, f"{name}-{asker}.reply", reply)


def _ask(name_server: str, request: bytes) -> bytes:
    host, _, port = name_server.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=SOCKET_TIMEOUT_S) as connection:
        connection.sendall(request)
        with connection.makefile("rb") as replies:
            length = replies.read(4)
            return length + replies.read(int.from_bytes(length, "big"))


def _clients(line: str, folder: Path) -> list[tuple[str, Language, Driver]]:
    """The official clients that are asked to talk; the one in Go with the last line only."""
    clients: list[tuple[str, Language, Driver]] = [
        (
            f"java-client-{building.java_version(line, 'client')}",
            Language.JAVA,
            JavaDriver(line, folder / "java-client"),
        )
    ]
    if line == building.LINES[-1]:
        clients.append(
            (f"go-client-{building.go_version()}", Language.GO, GoDriver(folder / "go-client"))
        )
    return clients


def _record_clients(line: str, folder: Path, relay: Relay) -> None:
    """Let the official clients ask for a route, by sending one message."""
    for name, language, driver in _clients(line, folder):
        seen = len(relay.exchanges())
        driver.start()
        try:
            driver.produce(relay.address, TOPIC, 1)
        finally:
            driver.stop()
        exchange = next(
            exchange
            for exchange in relay.exchanges()[seen:]
            if (asked := decode_frame(exchange.request)).language is language
            and asked.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
            and asked.fields.get("topic") == TOPIC
        )
        _save(name, "route", exchange)


def _record_broker(line: str, folder: Path, broker: str) -> None:
    """Let the official clients send and consume through a relay before the broker.

    A name server of its own tells them that the broker is where the relay is.
    """
    name_server = OfficialNameServer(line, folder / "relayed-name-server")
    name_server.process.start()
    name_server.wait_ready()
    relay = Relay(broker)
    host, _, port = name_server.address.rpartition(":")
    try:
        # The broker that registers over a connection is forgotten when the connection ends.
        with socket.create_connection((host, int(port)), timeout=SOCKET_TIMEOUT_S) as registrar:
            registrar.sendall(_relayed_registration(relay.address))
            assert registrar.recv(1)
            for name, _, driver in _clients(line, folder / "relayed"):
                seen = len(relay.exchanges())
                _send_and_consume(driver, name_server.address)
                _save_broker_exchanges(name, relay.exchanges()[seen:])
    finally:
        relay.close()
        name_server.process.stop()


def _relayed_registration(address: str) -> bytes:
    topics = {
        topic: TopicConfig(name=topic, read_queues=4, write_queues=4)
        for topic in (TOPIC, f"%RETRY%{GROUP}")
    }
    header = RegisterBroker(
        broker_name=BROKER, broker_address=address, cluster_name=CLUSTER, broker_id=Long(0)
    )
    return request(header, encode_register_body(topics, DataVersion(counter=1))).encode()


def _send_and_consume(driver: Driver, name_server: str) -> None:
    driver.start()
    try:
        driver.produce(name_server, TOPIC, 1, tags="TagA", keys="key")
        driver.consume(name_server, TOPIC, 1, group=GROUP, expression="TagA || TagB")
    finally:
        driver.stop()


def _save_broker_exchanges(client: str, exchanges: list[Exchange]) -> None:
    """Keep the first exchange of each kind that succeeded."""
    for name, codes in BROKER_EXCHANGES.items():
        _save(
            client,
            name,
            next(
                exchange
                for exchange in exchanges
                if decode_frame(exchange.request).code in codes
                and decode_frame(exchange.reply).code == ResponseCode.SUCCESS
            ),
        )


def _is(code: RequestCode) -> Callable[[Command], bool]:
    return lambda command: command.code == code


def _save(folder: str, name: str, exchange: Exchange) -> None:
    _save_frame(folder, f"{name}.request", exchange.request)
    _save_frame(folder, f"{name}.reply", exchange.reply)


def _save_frame(folder: str, name: str, frame: bytes) -> None:
    assert len(frame) <= FRAME_FILE_BYTES_MAX, (name, len(frame))
    for secret in (socket.gethostname(), str(Path.home()), tempfile.gettempdir()):
        assert secret.encode() not in frame, (name, secret)
    file = GOLDEN / folder / f"{name}.bin"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(frame)


if __name__ == "__main__":
    main()
