"""A slave of ours is promoted, before official name servers and official clients."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.replication.timer_file import read_master_timers
from orbitmq.client import PullConsumer
from orbitmq.clock import SystemClock
from tests.interop import wire
from tests.interop.building import LINES
from tests.interop.drivers import Driver, JavaDriver
from tests.interop.load import Load
from tests.interop.official import OfficialBroker, OfficialNameServer
from tests.interop.ours import OrbitBroker, OrbitNameServer
from tests.interop.peers import BROKERS, NameServer, Peer
from tests.interop.timeouts import CLIENT_TIMEOUT_S, START_TIMEOUT_S
from tests.waiting import POLL_INTERVAL_S, wait_until

pytestmark = pytest.mark.interop

# Of two masters, name servers of this line show the one that reported last, and forget both if one
# of them leaves.
LAST_COUNTS = "v4"
QUEUES = 4
ACKED = 100
# Messages that each client sends before the master dies, and after its slave was promoted.
FURTHER = 20
DRAIN_TIMEOUT_MS = 240_000
# The shortest that there is: a master that is replaced learns of it before its next report.
_OFTEN = {"registerNameServerPeriod": "10000"}


class Pair:
    """A sync master and its slave, ours, known to official name servers."""

    def __init__(
        self, name_servers: Sequence[NameServer], new_folder: Callable[[str], Path]
    ) -> None:
        name = "promoted"
        self.name = name
        self.name_servers = name_servers
        servers = [server.address for server in name_servers]
        self.old = OrbitBroker(
            name,
            new_folder("old master"),
            servers,
            {**_OFTEN, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"},
        )
        self.new = OrbitBroker(
            name,
            new_folder("new master"),
            servers,
            {**_OFTEN, "brokerRole": "SLAVE", "brokerId": "1"},
        )

    def start(self) -> None:
        """Start everything; returns once the slave follows its master."""
        for server in self.name_servers:
            server.process.start()
        for server in self.name_servers:
            server.wait_ready()
        self.old.process.start()
        self.old.wait_ready()
        self.new.process.start()
        self.wait_slave(self.new)

    def stop(self) -> None:
        """End everything."""
        servers = [server.process for server in self.name_servers]
        for process in (self.old.process, self.new.process, *servers):
            process.kill()

    def tables(self) -> list[dict[str, str]]:
        """The brokers of the pair that each name server knows, by their id; none if it is down."""
        return [self._table(server.address) for server in self.name_servers]

    def _table(self, name_server: str) -> dict[str, str]:
        try:
            return wire.broker_addresses(name_server, self.name)
        except OSError:
            return {}

    def wait_table(self, table: dict[str, str]) -> None:
        """Return once every name server knows these brokers and no others."""
        wait_until(
            lambda: all(known == table for known in self.tables()),
            timeout_s=CLIENT_TIMEOUT_S,
            what=f"{table} at the name servers",
        )

    def wait_replaced(self) -> None:
        """Return once the old master follows the new one, and name servers know both as that."""
        self.wait_slave(self.old)
        self.wait_table({"0": self.new.address, "1": self.old.address})

    def wait_slave(self, broker: OrbitBroker) -> None:
        """Return once a broker is a slave, and has what the master has."""

        def follows() -> bool:
            said = standing(broker)
            return said.get("role") == "SLAVE" and said["isLinked"] and not said["failure"]

        wait_until(follows, timeout_s=START_TIMEOUT_S, what=f"{broker.address} follows")

    def promote(self, *, force: bool = False) -> None:
        """Make the slave the master; returns once it is."""
        promote(self.new, force=force)


def promote(slave: OrbitBroker, *, force: bool = False) -> None:
    """Make a slave the master; returns once it is."""
    fields = {
        "brokerName": slave.name,
        "epoch": "1",
        "role": "ASYNC_MASTER",
        "force": str(force).lower(),
    }
    answer = wire.ask(slave.address, wire.PROMOTE_BROKER, fields)
    assert answer.code == wire.SUCCESS, answer
    wait_until(
        lambda: standing(slave).get("isMaster", False),
        timeout_s=START_TIMEOUT_S,
        what="the slave is the master",
    )


def standing(broker: OrbitBroker) -> dict[str, Any]:
    """What a broker says of itself; empty while it does not answer."""
    try:
        return dict(wire.ask(broker.address, wire.READ_STANDING).body)
    except OSError:
        return {}


def send(
    broker: OrbitBroker | OfficialBroker, topic: str, body: bytes, properties: str = ""
) -> int:
    """Send one message to one broker, whatever the route says; returns the code of the answer."""
    fields = {
        "producerGroup": "interop-producers",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "0",
        "flag": "0",
        "properties": properties,
        "reconsumeTimes": "0",
        "unitMode": "false",
    }
    return wire.ask(broker.address, wire.SEND, fields, body=body).code


@contextmanager
def masters_shown(pair: Pair) -> Iterator[set[str]]:
    """All addresses that any name server shows as the master meanwhile."""
    shown: set[str] = set()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(POLL_INTERVAL_S):
            shown.update(table.get("0", "nobody") for table in pair.tables())

    looking = threading.Thread(target=look, name="masters shown")
    looking.start()
    try:
        yield shown
    finally:
        is_over.set()
        looking.join()


@pytest.fixture
def running_pair(new_folder: Callable[[str], Path]) -> Iterator[Callable[..., Pair]]:
    """Starts a pair with an official name server of each of these lines."""
    made: list[Pair] = []

    def start(*lines: str) -> Pair:
        servers = [OfficialNameServer(line, new_folder(f"name server {line}")) for line in lines]
        made.append(Pair(servers, new_folder))
        made[-1].start()
        return made[-1]

    yield start
    for pair in made:
        pair.stop()


@pytest.mark.scenario("loader", "our broker: killed, and its slave promoted")
def test_official_clients_go_on_with_a_promoted_slave(
    loader: JavaDriver, running_pair: Callable[..., Pair], new_topic: str
) -> None:
    pair = running_pair(*LINES)
    topics = [f"{new_topic}-{line}" for line in LINES]
    loads = [Load(loader, topic) for topic in topics]
    for load, server in zip(loads, pair.name_servers, strict=True):
        pair.old.create_topic(load.topic, queues=QUEUES)
        load.start(server.address, pair.name, queues=QUEUES, producers=QUEUES, consumers=1)

    def goes_on() -> None:
        for load in loads:
            load.wait_for_more("acked", ACKED)
            load.wait_for_more("received", ACKED)

    def consumed() -> list[int]:
        return [committed(pair.new, load) for load in loads]

    goes_on()
    wait_until(
        lambda: all(consumed()), timeout_s=CLIENT_TIMEOUT_S, what="the slave has committed offsets"
    )
    pair.old.process.kill()
    before = consumed()
    for load in loads:
        load.wait_for_more("failed", 1)
    pair.promote()
    after = consumed()
    goes_on()
    with masters_shown(pair) as shown:
        pair.old.process.start()
        pair.wait_replaced()
        goes_on()
    verdicts = [load.stop(timeout_ms=DRAIN_TIMEOUT_MS) for load in loads]

    assert shown == {pair.new.address}
    assert all(now >= then for now, then in zip(after, before, strict=True))
    assert [verdict["faults"] for verdict in verdicts] == [[], []]
    assert [verdict["missing"] for verdict in verdicts] == [0, 0]
    for load in loads:
        sent = sum(wire.max_offset(pair.new.address, load.topic, queue) for queue in range(QUEUES))
        wire.wait_committed(pair.new.address, load.group, load.topic, sent)


def committed(broker: OrbitBroker, load: Load) -> int:
    """How many messages a load has consumed, as a broker knows it."""
    return sum(
        wire.committed(broker.address, load.group, load.topic, queue) for queue in range(QUEUES)
    )


class Sends:
    """Messages that one official client sends one by one, whatever happens, until this ends."""

    def __init__(self, driver: Driver, producer: str, topic: str) -> None:
        self._driver, self._producer, self._topic = driver, producer, topic
        self.acked: set[str] = set()
        self.failed = 0
        self._is_over = threading.Event()
        self._sending = threading.Thread(target=self._send, name=producer)
        self._sending.start()

    def _send(self) -> None:
        for number in itertools.count():
            body = f"{self._producer} {number}"
            wish: dict[str, object] = {"topic": self._topic, "body": body}
            (outcome,) = self._driver.post(self._producer, [wish])
            if outcome.status == "SEND_OK":
                self.acked.add(body)
            else:
                self.failed += 1
            if self._is_over.wait(POLL_INTERVAL_S):
                return

    def wait_for_more(self) -> None:
        """Return once more messages are acknowledged."""
        target = len(self.acked) + FURTHER
        wait_until(
            lambda: len(self.acked) >= target,
            timeout_s=CLIENT_TIMEOUT_S,
            what=f"{target} acknowledged messages of {self._producer}",
        )

    def wait_for_failure(self) -> None:
        """Return once another send has failed."""
        before = self.failed
        wait_until(
            lambda: self.failed > before,
            timeout_s=CLIENT_TIMEOUT_S,
            what=f"a failed send of {self._producer}",
        )

    def end(self) -> None:
        """Send no more."""
        self._is_over.set()
        self._sending.join()


def test_nothing_that_a_killed_sync_master_acknowledged_is_lost_to_official_clients(
    official_clients: dict[str, Driver], new_folder: Callable[[str], Path], new_topic: str
) -> None:
    pair = Pair([OrbitNameServer(new_folder("name server of ours"))], new_folder)
    names = {line: f"{new_topic}-{line}" for line in official_clients}
    sends: dict[str, Sends] = {}
    try:
        pair.start()
        (name_server,) = (server.address for server in pair.name_servers)
        for line, driver in official_clients.items():
            topic = names[line]
            pair.old.create_topic(topic, queues=QUEUES)
            driver.open_producer(topic, name_server)
            driver.open_consumer(topic, name_server, topic, group=f"group-{topic}")
            sends[line] = Sends(driver, topic, topic)
        for each in sends.values():
            each.wait_for_more()

        pair.old.process.kill()
        for each in sends.values():
            each.wait_for_failure()
        pair.promote()
        for each in sends.values():
            each.wait_for_more()

        for line, each in sends.items():
            each.end()
            wait_until(
                partial(has_received, official_clients[line], names[line], each.acked),
                timeout_s=CLIENT_TIMEOUT_S,
                what=f"{line} receives all that was acknowledged",
            )
    finally:
        for each in sends.values():
            each.end()
        for line in sends:
            official_clients[line].close_later(consumers=[names[line]], producers=[names[line]])
        pair.stop()


def has_received(driver: Driver, consumer: str, bodies: set[str]) -> bool:
    """Whether a consumer has received all of these."""
    received = driver.received(consumer, len(bodies), timeout_ms=1000)
    return bodies <= {message.body for message in received}


def test_a_master_that_stood_still_gives_way_to_the_promoted_slave(
    running_pair: Callable[..., Pair], new_topic: str
) -> None:
    pair = running_pair(*LINES)
    pair.old.create_topic(new_topic, queues=QUEUES)
    assert send(pair.old, new_topic, b"before") == wire.SUCCESS
    pair.old.process.pause()
    pair.promote(force=True)
    pair.wait_table({"0": pair.new.address})
    assert send(pair.new, new_topic, b"after") == wire.SUCCESS

    with masters_shown(pair) as shown:
        pair.old.process.resume()
        pair.wait_replaced()

    assert shown == {pair.new.address}
    assert send(pair.old, new_topic, b"refused") != wire.SUCCESS
    assert standing(pair.old)["logEnd"] == standing(pair.new)["logEnd"]
    assert wire.max_offset(pair.new.address, new_topic, 0) == 2


def test_a_replaced_master_that_is_stopped_leaves_the_new_one_in_the_routes(
    running_pair: Callable[..., Pair], new_topic: str
) -> None:
    pair = running_pair(LAST_COUNTS)
    pair.old.create_topic(new_topic)
    assert send(pair.old, new_topic, b"before") == wire.SUCCESS
    pair.old.process.pause()
    pair.promote(force=True)
    pair.wait_table({"0": pair.new.address})

    with masters_shown(pair) as shown:
        pair.old.process.stop()

    assert shown == {pair.new.address}
    assert pair.tables() == [{"0": pair.new.address}]


def test_a_replaced_master_that_found_no_name_server_asks_before_it_registers(
    running_pair: Callable[..., Pair], new_topic: str
) -> None:
    pair = running_pair(LAST_COUNTS)
    (name_server,) = pair.name_servers
    pair.old.create_topic(new_topic)
    assert send(pair.old, new_topic, b"before") == wire.SUCCESS
    pair.old.process.kill()
    pair.promote()
    pair.wait_table({"0": pair.new.address})
    name_server.process.kill()
    pair.old.process.start()
    # Nobody told it, so it begins as it is configured.
    wait_until(
        lambda: standing(pair.old).get("isMaster", False),
        timeout_s=START_TIMEOUT_S,
        what="the old master is up",
    )
    # The new master registers first.
    pair.old.process.pause()
    name_server.process.start()
    pair.wait_table({"0": pair.new.address})

    with masters_shown(pair) as shown:
        pair.old.process.resume()
        pair.wait_replaced()

    assert shown == {pair.new.address}


@pytest.fixture(params=BROKERS[1:], ids=str)
def peer(request: pytest.FixtureRequest) -> Peer:
    """The line of the official master, which has timers."""
    value: Peer = request.param
    return value


@pytest.mark.scenario("peer", "is replaced by our slave, which goes on with its timers")
def test_timers_that_an_official_master_delivered_are_not_delivered_again(
    peer: Peer,
    name_servers: dict[str, NameServer],
    new_folder: Callable[[str], Path],
    new_topic: str,
) -> None:
    servers = [name_servers["ours"].address]
    options = {"mappedFileSizeCommitLog": str(16 << 20), "timerWheelEnable": "true"}
    master = OfficialBroker(peer.line, "timers", new_folder("timers master"), servers, options)
    folder = new_folder("timers slave")
    slave = OrbitBroker(
        "timers", folder, servers, {**options, "brokerRole": "SLAVE", "brokerId": "1"}
    )

    def slave_knows() -> bool:
        timers = read_master_timers(folder / "store" / "orbitmq")
        return timers is not None and timers.checkpoint.read_ms > due_ms

    try:
        master.process.start()
        master.wait_ready()
        slave.process.start()
        master.create_topic(new_topic, queues=1)
        due_ms = SystemClock().now_ms() + 2_000
        assert send(master, new_topic, b"old", f"TIMER_DELIVER_MS\x01{due_ms}\x02") == wire.SUCCESS
        wire.wait_shown(master.address, new_topic, 1, queues=1)
        wait_until(slave_knows, timeout_s=CLIENT_TIMEOUT_S, what="the slave has the progress")
        master.process.kill()

        promote(slave)
        later_ms = SystemClock().now_ms() + 1_000
        assert send(slave, new_topic, b"new", f"TIMER_DELIVER_MS\x01{later_ms}\x02") == wire.SUCCESS
        with PullConsumer("g", namesrv=servers[0]) as consumer:
            (queue,) = consumer.queues(new_topic)

            def bodies() -> list[bytes]:
                return [message.body for message in consumer.pull(queue, "*", 0).messages]

            # Timers are delivered in the order of their times.
            wait_until(
                lambda: b"new" in bodies(), timeout_s=CLIENT_TIMEOUT_S, what="the next timer"
            )

            assert bodies() == [b"old", b"new"]
    finally:
        master.process.kill()
        slave.process.kill()
