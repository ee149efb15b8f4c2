"""Fixtures of the Spark suite: one Spark for all tests, and clusters that its workers reach."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from orbitmq.embedded import Cluster
from orbitmq.errors import SettingsError
from tests.spark.streams import started
from tests.spark.suite import SHARED
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Halves the start of Spark, and suits small jobs: compile quickly rather than well.
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


class StartCluster(Protocol):
    """Starts a cluster for one test."""

    def __call__(
        self,
        *,
        brokers: int = 1,
        directory: Path | None = None,
        network_faults: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> Topics:
        """Start it; arguments as of `Cluster`."""


@pytest.fixture(scope="session")
def java_home() -> Path:
    """The Java that Spark runs on; without one, tests that need it are skipped."""
    from orbitmq.spark.sessions.java_runtime import find_java_home

    try:
        return find_java_home()
    except SettingsError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def shared(pytestconfig: pytest.Config) -> ExitStack:
    """Resources that are closed after the last test of this suite."""
    return pytestconfig.stash[SHARED]


@pytest.fixture(scope="session")
def spark(
    java_home: Path, tmp_path_factory: pytest.TempPathFactory, shared: ExitStack
) -> SparkSession:
    """The one session of this process; tests restore what they change."""
    assert java_home.is_dir()
    from pyspark.logger import PySparkLogger

    from orbitmq.spark import session

    # Its own gives each handler another format for good, that of pytest's too.
    PySparkLogger.addHandler = logging.Logger.addHandler  # type: ignore[method-assign,assignment]
    warehouse = tmp_path_factory.mktemp("warehouse")
    made = session(
        "tests",
        cores=2,
        settings={
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.driver.extraJavaOptions": SMALL_JVM,
            # Where Spark Connect listens, once a test starts it.
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            # Longer time limits, where Spark lets us set them: a busy machine is not a broken one.
            "spark.python.authenticate.socketTimeout": "120s",
        },
    )
    shared.callback(made.stop)
    return made


@pytest.fixture
def patient_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts every query whose processes started too slowly for Spark."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    def patiently(start: Callable[..., StreamingQuery]) -> Callable[..., StreamingQuery]:
        return lambda *given, **options: started(lambda: start(*given, **options))

    for name in ("start", "toTable"):
        monkeypatch.setattr(DataStreamWriter, name, patiently(getattr(DataStreamWriter, name)))


@pytest.fixture(scope="session")
def cluster(shared: ExitStack) -> Cluster:
    """A cluster of two brokers for all tests, each with topics of its own."""
    return shared.enter_context(Cluster(brokers=2, in_memory=True))


@pytest.fixture(scope="module")
def topics(cluster: Cluster) -> Iterator[Topics]:
    """Makes and fills topics of the shared cluster; its clients end with the file that used it.

    The worker continues with other suites, and some of those check for threads left running.
    """
    with Topics(cluster) as made:
        yield made


@pytest.fixture
def start_cluster() -> Iterator[StartCluster]:
    """Starts clusters for one test, to damage or with other options."""
    with ExitStack() as opened:

        def start(
            *,
            brokers: int = 1,
            directory: Path | None = None,
            network_faults: bool = False,
            options: Mapping[str, str] | None = None,
        ) -> Topics:
            cluster = Cluster(
                brokers=brokers,
                directory=directory,
                in_memory=directory is None,
                network_faults=network_faults,
                # A disk that is busy with others must not turn into sends that are not OK.
                options={"syncFlushTimeout": "60000", **(options or {})},
            )
            return opened.enter_context(Topics(opened.enter_context(cluster)))

        yield start
