"""A PostgreSQL of the tests: one server for each process, a database for each test.

All tests load this module, those too that run where psycopg is not installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.held_ports import held_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    import psycopg

    from orbitmq.pipelines.tables.postgres.database import Database

PASSWORD = "a-secret-of-the-tests"
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
# As root, PostgreSQL does not run.
SERVER_USER = "postgres" if os.geteuid() == 0 else None
# What a crash of the machine would lose does not matter here.
SETTINGS = {"fsync": "off", "max_connections": "60", "unix_socket_directories": ""}

_STARTED = pytest.StashKey[ExitStack]()


class Server:
    """A running server."""

    def __init__(self, port: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.port = port
        self.process = process
        self._log = log
        self._numbers = count()

    def new_database(self) -> Database:
        """An empty database."""
        name = f"test_{next(self._numbers)}"
        with self.connected("postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.database(name)

    def database(self, name: str) -> Database:
        from orbitmq.pipelines.tables.postgres.database import Database

        return Database(
            host="127.0.0.1",
            port=self.port,
            name=name,
            user="postgres",
            password=PASSWORD,
            statement_ms=120_000,
        )

    def connected(
        self, database: str, *, autocommit: bool = False
    ) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection, to be closed."""
        import psycopg

        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            dbname=database,
            user="postgres",
            password=PASSWORD,
            connect_timeout=10,
            autocommit=autocommit,
        )

    def is_up(self) -> bool:
        import psycopg

        assert self.process.poll() is None, self._log.read_text(errors="replace")[-2000:]
        try:
            self.connected("postgres").close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def running_server() -> Iterator[Server]:
    """Start a server of its own on 127.0.0.1, and stop it; skips the test where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("there is no PostgreSQL in /usr/lib/postgresql (.ci/packages installs it)")
    programs = found[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="orbitmq-postgres-"))
    try:
        with held_port() as port:
            yield from _running(programs, folder, port)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _running(programs: Path, folder: Path, port: int) -> Iterator[Server]:
    password, files, log = folder / "password", folder / "files", folder / "log"
    password.write_text(PASSWORD)
    if SERVER_USER:
        for path in (folder, password):
            shutil.chown(path, SERVER_USER)
    subprocess.run(
        [
            programs / "initdb", "--pgdata", files, "--username=postgres", "--auth=scram-sha-256",
            f"--pwfile={password}", "--encoding=UTF8", "--locale=C", "--no-sync",
        ],
        check=True, capture_output=True, timeout=START_TIMEOUT_S, user=SERVER_USER, cwd=folder,
    )  # fmt: skip
    settings = {**SETTINGS, "listen_addresses": "127.0.0.1", "port": str(port)}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [programs / "postgres", "-D", files, *options],
            stdout=output, stderr=output, user=SERVER_USER, cwd=folder,
        ) as process,
    ):  # fmt: skip
        try:
            server = Server(port, process, log)
            wait_until(server.is_up, timeout_s=START_TIMEOUT_S, what="PostgreSQL takes connections")
            yield server
        finally:
            # Ends all connections first.
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STARTED] = ExitStack()


def pytest_unconfigure(config: pytest.Config) -> None:
    # Not within the last test of the process, which may have little time.
    config.stash[_STARTED].close()


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> Server:
    """The server of all tests of this process."""
    return pytestconfig.stash[_STARTED].enter_context(running_server())


@pytest.fixture
def database(postgres: Server) -> Database:
    """An empty database."""
    return postgres.new_database()
