"""Finds the background server, or starts it, and connects to it.

Only one client starts it: the others wait for its lock, and find the server that it started.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from orbitmq.errors import QueryError
from orbitmq.pipelines.queries.server_state import (
    LOOK_S,
    Patience,
    ServerState,
    StateFolder,
    runtime_folder,
    versions_here,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.session import SparkSession as ConnectSession

IDLE_MS: Final = 15 * 60_000
_START_MAX_MS: Final = 300_000
_STOP_MAX_MS: Final = 60_000
_LOG_SHOWN: Final = 2_000
# Of a request to the server, within some seconds.
_RETRIES: Final = 4


@dataclass(slots=True)
class BackgroundSpark:
    """The background server, and the session of this process on it."""

    idle_ms: int = IDLE_MS
    # Called while it starts, with how long that has taken, and when it is ready.
    on_wait: Callable[[float], None] = lambda _took_ms: None
    on_ready: Callable[[float], None] = lambda _took_ms: None
    state: StateFolder = field(default_factory=lambda: StateFolder(runtime_folder(os.environ)))
    _session: SparkSession | None = None
    _connected_to: ServerState | None = None

    def session(self) -> SparkSession:
        """The session; the server is started, and connected to again, if need be."""
        found = self.found_or_started()
        if self._session is None or found != self._connected_to:
            self.close()
            self._session, self._connected_to = _connect(found), found
        return self._session

    def is_gone(self) -> bool:
        """Whether the server of the session has ended, as it does when it was idle for too long."""
        return self._session is not None and self._connected_to != self.state.running()

    def close(self) -> None:
        """End the session; the server stays."""
        session, self._session = self._session, None
        if session is not None and self._connected_to == self.state.running():
            session.stop()

    def found_or_started(self) -> ServerState:
        """The server that runs, which is started if there is none of these versions."""
        found = self.state.running()
        if found is not None and found.versions == versions_here():
            return found
        patience = Patience(_START_MAX_MS)
        with self.state.as_starter(patience):
            found = self.state.running()
            if found is not None and found.versions == versions_here():
                return found
            if found is not None:
                self._end(found)
            return self._start()

    def stop(self) -> ServerState | None:
        """Stop the server; None if there is none."""
        self.close()
        with self.state.as_starter(Patience(_START_MAX_MS)):
            found = self.state.running()
            if found is not None:
                self._end(found)
            return found

    def _end(self, server: ServerState) -> None:
        os.kill(server.pid, signal.SIGTERM)
        patience = Patience(_STOP_MAX_MS)
        while self.state.is_held():
            if not patience.wait():
                raise QueryError(
                    f"Spark, process {server.pid}, does not stop", hint=f"look at {self.state.log}"
                )

    def _start(self) -> ServerState:
        began = Patience(_START_MAX_MS)
        ready, write_end = os.pipe()
        try:
            self.state.log.unlink(missing_ok=True)
            # Appending, so that the server can cut it.
            with self.state.log.open("ab") as log:
                process = subprocess.Popen(  # noqa: S603  # this Python
                    [
                        sys.executable,
                        "-m",
                        "orbitmq.pipelines.queries.server",
                        str(self.state.folder),
                        str(self.idle_ms),
                        str(write_end),
                    ],
                    cwd=self.state.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=[write_end],
                    # Ctrl-C and a closed terminal are not for it.
                    start_new_session=True,
                )
            os.close(write_end)
            is_ready = self._await(ready, process, began)
        finally:
            os.close(ready)
        found = self.state.running()
        if not is_ready or found is None:
            raise QueryError(f"Spark did not start: {self._last_words()}", hint=self._see_log())
        self.on_ready(began.took_ms)
        return found

    def _await(self, ready: int, process: subprocess.Popen[bytes], began: Patience) -> bool:
        """Wait until the server says that it is ready; False if it ended before."""
        try:
            while not select.select([ready], [], [], LOOK_S)[0]:
                self.on_wait(began.took_ms)
                if began.is_over:
                    process.terminate()
                    raise QueryError(
                        f"Spark did not start in {_START_MAX_MS // 1000} s", hint=self._see_log()
                    )
            return bool(os.read(ready, 16))
        except KeyboardInterrupt:
            process.terminate()
            raise

    def _last_words(self) -> str:
        lines = self.state.log.read_text(errors="replace")[-_LOG_SHOWN:].strip().splitlines()
        return lines[-1] if lines else "it ended"

    def _see_log(self) -> str:
        return f"more is in {self.state.log}; --local runs Spark in this process"


def _connect(server: ServerState) -> SparkSession:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # By name: only then does Spark's client send a token without TLS, and only to this machine.
    session = _session_at(f"sc://localhost:{server.port}/;token={server.token}")
    # Otherwise Spark's client would try for ten minutes to reach a server that has ended.
    session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
    return session  # type: ignore[return-value]  # has the same methods


def connected(remote: str) -> SparkSession:
    """A session of Spark Connect."""
    return _session_at(remote)  # type: ignore[return-value]  # has the same methods


def _session_at(remote: str) -> ConnectSession:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    return ConnectSession.builder.remote(remote).create()
