"""Fixtures of the interop suite: official peers, started once where sharing is safe."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop import building
from tests.interop.building import is_set
from tests.interop.drivers import Driver, GoDriver, JavaDriver
from tests.interop.exchanges import Exchange, MakeExchange
from tests.interop.official import NO_IDLE_LOOP, OfficialBroker, OfficialNameServer
from tests.interop.ours import OrbitBroker, OrbitNameServer
from tests.interop.peers import (
    ADMINS,
    BROKERS,
    CLIENTS,
    GO_LINE,
    NAME_SERVERS,
    OUR_LINE,
    REFERENCE_LINE,
    SITES,
    NameServer,
    OurCluster,
    StartBroker,
    StartNameServer,
    StartOurCluster,
)
from tests.interop.python_trials import Site, Trial
from tests.interop.suite import BUILD_FAILURE

# So that retries, which begin at level 3, come soon.
SHORT_DELAYS = "1s 2s 1s 1s 1s 1s"


@pytest.fixture(scope="session")
def new_folder(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Makes a folder for each process, once what the processes run on has been built."""
    if BUILD_FAILURE in pytestconfig.stash:
        raise pytestconfig.stash[BUILD_FAILURE]
    return lambda name: tmp_path_factory.mktemp(name.replace(" ", "-"))


NewFolder = Callable[[str], Path]


@contextmanager
def both_name_servers(new_folder: NewFolder) -> Iterator[dict[str, NameServer]]:
    """An official name server and ours, running."""
    servers: dict[str, NameServer] = {
        "official": OfficialNameServer(REFERENCE_LINE, new_folder("official name server")),
        "ours": OrbitNameServer(new_folder("our name server")),
    }
    try:
        for server in servers.values():
            server.process.start()
        for server in servers.values():
            server.wait_ready()
        yield servers
    finally:
        for server in servers.values():
            server.process.kill()


@contextmanager
def official_brokers(
    name_servers: dict[str, NameServer], new_folder: NewFolder, *, deletes_topics: bool = False
) -> Iterator[dict[str, OfficialBroker]]:
    """One official broker per line, running, and registered with all name servers."""
    addresses = [server.address for server in name_servers.values()]
    settings = {
        "messageDelayLevel": SHORT_DELAYS,
        "enablePropertyFilter": "true",
        # Compat: without its timer, a broker of RocketMQ 5.5 fails to delete topics; with it, an
        # idle one takes a quarter of a processor.
        "timerWheelEnable": "true" if deletes_topics else "false",
        **NO_IDLE_LOOP,
    }
    made = {
        line: OfficialBroker(
            line, f"broker-{line}", new_folder(f"broker-{line}"), addresses, settings
        )
        for line in building.LINES
    }
    try:
        for broker in made.values():
            broker.process.start()
        for broker in made.values():
            broker.wait_ready()
        for broker in made.values():
            broker.wait_figures()
        yield made
    finally:
        for broker in made.values():
            broker.process.kill()


@pytest.fixture(scope="session")
def name_servers(new_folder: NewFolder) -> Iterator[dict[str, NameServer]]:
    """An official name server and ours; every shared broker registers with both."""
    with both_name_servers(new_folder) as servers:
        yield servers


@pytest.fixture(scope="session")
def brokers(
    name_servers: dict[str, NameServer], new_folder: NewFolder
) -> Iterator[dict[str, OfficialBroker]]:
    """One official broker per line, shared: tests leave them as they found them."""
    with official_brokers(name_servers, new_folder) as shared:
        yield shared


@pytest.fixture(scope="session")
def new_cluster(new_folder: Callable[[str], Path]) -> Callable[..., OurCluster]:
    """Makes clusters of ours, with short delays for retries."""
    numbers = itertools.count(1)

    def make(*, brokers: int = 1, **options: str) -> OurCluster:
        server = OrbitNameServer(new_folder("name server of our cluster"))
        names = [f"ours-{next(numbers)}" for _ in range(brokers)]
        settings = {"messageDelayLevel": SHORT_DELAYS, **options}
        return OurCluster(
            server,
            tuple(
                OrbitBroker(name, new_folder(name), [server.address], settings) for name in names
            ),
        )

    return make


@pytest.fixture(scope="session")
def our_cluster(new_cluster: Callable[..., OurCluster]) -> Iterator[OurCluster]:
    """Our name server with our broker, shared: tests use topics and groups of their own."""
    made = new_cluster()
    try:
        yield made.start()
    finally:
        made.stop()


@pytest.fixture
def start_our_cluster(new_cluster: Callable[..., OurCluster]) -> Iterator[StartOurCluster]:
    """Starts clusters of the test's own, to do harm to or with options of their own."""
    started: list[OurCluster] = []

    def start(*, brokers: int = 1, **options: str) -> OurCluster:
        started.append(new_cluster(brokers=brokers, **options))
        return started[-1].start()

    yield start
    for made in started:
        made.stop()


@pytest.fixture(scope="session")
def drivers(new_folder: Callable[[str], Path]) -> Iterator[Callable[[str], Any]]:
    """Starts the driver of a line when it is first asked for."""
    started: dict[str, Driver] = {}

    def driver(line: str) -> Driver:
        if line not in started:
            folder = new_folder(f"driver-{line}")
            made = GoDriver(folder) if line == GO_LINE else JavaDriver(line, folder)
            started[line] = made.start()
        return started[line]

    yield driver
    for running in started.values():
        running.stop()


@pytest.fixture(params=NAME_SERVERS)
def name_server(request: pytest.FixtureRequest, name_servers: dict[str, NameServer]) -> NameServer:
    """A name server that the shared brokers registered with."""
    return name_servers[request.param]


@pytest.fixture(params=BROKERS, ids=str)
def broker(request: pytest.FixtureRequest, brokers: dict[str, OfficialBroker]) -> OfficialBroker:
    """A shared official broker."""
    return brokers[request.param.line]


@pytest.fixture(params=CLIENTS, ids=str)
def client(request: pytest.FixtureRequest, drivers: Callable[[str], Driver]) -> Driver:
    """An official client."""
    return drivers(request.param.line)


@pytest.fixture(params=ADMINS, ids=str)
def admin(request: pytest.FixtureRequest, drivers: Callable[[str], JavaDriver]) -> JavaDriver:
    """The official mqadmin."""
    return drivers(request.param.line)


@pytest.fixture(params=CLIENTS[1:2], ids=str)
def loader(
    request: pytest.FixtureRequest, new_folder: Callable[[str], Path]
) -> Iterator[JavaDriver]:
    """A driver of its own: its clients look for their queues every second, not every twenty."""
    made = JavaDriver(
        request.param.line,
        new_folder("driver of load"),
        properties=[
            "rocketmq.client.rebalance.waitInterval=1000",
            "rocketmq.client.rebalance.lockInterval=1000",
        ],
    )
    yield made.start()
    made.stop()


@pytest.fixture
def start_broker(new_folder: Callable[[str], Path]) -> Iterator[StartBroker]:
    """Starts a broker of the test's own, to do harm to, and returns it once it is registered."""
    started: list[OfficialBroker] = []

    def start(line: str, name_servers: list[str]) -> OfficialBroker:
        name = f"own-{line}-{len(started)}"
        made = OfficialBroker(line, name, new_folder(name), name_servers)
        started.append(made)
        made.process.start()
        made.wait_ready()
        return made

    yield start
    for made in started:
        made.process.kill()


@pytest.fixture
def start_name_server(new_folder: Callable[[str], Path]) -> Iterator[StartNameServer]:
    """Starts one of our name servers for the test alone."""
    started: list[OrbitNameServer] = []

    def start() -> OrbitNameServer:
        made = OrbitNameServer(new_folder("own name server"))
        started.append(made)
        made.process.start()
        made.wait_ready()
        return made

    yield start
    for made in started:
        made.process.stop()


@pytest.fixture(scope="session")
def _topic_numbers() -> Iterator[int]:
    return itertools.count(1)


@pytest.fixture
def new_topic(_topic_numbers: Iterator[int]) -> str:
    """A topic name that no other test uses."""
    return f"interop-topic-{next(_topic_numbers)}"


@pytest.fixture
def exchange_at(client: Driver, new_topic: str) -> Iterator[MakeExchange]:
    """Makes the test's use of a client at any cluster of ours."""
    made: list[Exchange] = []

    def make(cluster: OurCluster) -> Exchange:
        made.append(Exchange(client, cluster, new_topic))
        return made[-1]

    yield make
    for exchange in made:
        exchange.close()


@pytest.fixture
def exchange(exchange_at: MakeExchange, our_cluster: OurCluster) -> Exchange:
    """The test's use of a client at our shared cluster, with a topic of four queues."""
    made = exchange_at(our_cluster)
    made.create_topic()
    return made


# --- Our clients -------------------------------------------------------------------------------


@pytest.fixture(params=SITES, ids=str)
def site(request: pytest.FixtureRequest) -> Site:
    """A broker, ours or an official one with its own name server, that our clients are tried at."""
    if request.param.line == OUR_LINE:
        cluster: OurCluster = request.getfixturevalue("our_cluster")
        return Site(OUR_LINE, cluster.name_server.address, cluster.broker)
    servers: dict[str, NameServer] = request.getfixturevalue("name_servers")
    brokers: dict[str, OfficialBroker] = request.getfixturevalue("brokers")
    return Site(request.param.line, servers["official"].address, brokers[request.param.line])


@pytest.fixture
def official_clients(drivers: Callable[[str], Driver]) -> dict[str, Driver]:
    """The official clients by line; the Go client is left out where the suite is to do so."""
    lines = [*building.LINES, *([] if is_set("ORBITMQ_NO_GO") else [GO_LINE])]
    return {line: drivers(line) for line in lines}


@pytest.fixture
async def trial(site: Site, new_topic: str) -> AsyncIterator[Trial]:
    """The test's use of our clients at a site, with a topic of four queues."""
    async with Trial(site, new_topic) as made:
        await made.create_topic(new_topic)
        yield made
