"""The background server: a Spark on this machine, for Spark Connect.

    python -m orbitmq.pipelines.queries.server FOLDER IDLE_MS READY_FD

It listens on 127.0.0.1, wants a token that only its user can read, and ends after a time without
queries, whatever its clients do. It says on the file descriptor given that it is ready. Its log is emptied when it is too long.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from orbitmq.clock import SystemClock
from orbitmq.pipelines.queries.server_state import ServerState, StateFolder, versions_here

TOKEN_VARIABLE: Final = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105  # a name, Spark's
_CORES: Final = 2
_LOOK_S: Final = 1.0
_LOG_BYTES_MAX: Final = 16 << 20
_SETTINGS: Final = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    # How long it takes to notice that a client was killed, and how long its query goes on then.
    "spark.connect.execute.reattachable.senderMaxStreamDuration": "10s",
    "spark.connect.execute.manager.detachedTimeout": "60s",
    # Small jobs: compile quickly rather than well, and take little memory.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


def main(folder: str, idle_ms: int, ready: int) -> None:
    """Serve until nobody has asked anything for a while, or SIGTERM."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    state = StateFolder(Path(folder))
    with state.as_server() as is_alone:
        if not is_alone:
            return
        token = os.environ[TOKEN_VARIABLE] = secrets.token_urlsafe(32)
        from orbitmq.spark import session

        warehouse = {"spark.sql.warehouse.dir": str(state.folder / "warehouse")}
        spark = session("orbitmq-sql", cores=_cores(), settings={**_SETTINGS, **warehouse})
        # Spark sets its own handlers as it starts.
        signal.signal(signal.SIGTERM, lambda *_: stopping.set())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        service = _service(spark.sparkContext._jvm)
        state.write(
            ServerState(
                pid=os.getpid(),
                port=service.localPort(),
                token=token,
                versions=versions_here(),
                idle_ms=idle_ms,
                started_ms=SystemClock().now_ms(),
            )
        )
        try:
            # Whoever started it may be gone.
            with contextlib.suppress(BrokenPipeError):
                os.write(ready, b"ready")
            os.close(ready)
            _serve(service, idle_ms, stopping)
        finally:
            state.forget()
            spark.stop()


def _cores() -> int:
    return min(_CORES, os.cpu_count() or 1)


def _serve(service: Any, idle_ms: int, stopping: threading.Event) -> None:
    clock = SystemClock()
    before: object = None
    since_ms = clock.monotonic_ms()
    while not stopping.wait(_LOOK_S):
        if os.fstat(sys.stderr.fileno()).st_size > _LOG_BYTES_MAX:
            os.ftruncate(sys.stderr.fileno(), 0)
        # The queries that run, or else when the last one ended.
        found = service.executionManager().listActiveExecutions()
        now = str(found)
        if now != before or _is_awaited(found):
            before, since_ms = now, clock.monotonic_ms()
        elif clock.monotonic_ms() - since_ms >= idle_ms:
            return


def _is_awaited(found: Any) -> bool:
    """Whether a client waits for a query: that of a killed client has no call attached to it."""
    if found.isLeft():
        return False
    running = found.right().get()
    each = [running.apply(number) for number in range(running.size())]
    return any(
        one.closedTimeNs().isEmpty() and one.lastAttachedRpcTimeNs().isEmpty() for one in each
    )


def _service(java: Any) -> Any:
    services = java.org.apache.spark.sql.connect.service
    return getattr(getattr(services, "SparkConnectService$"), "MODULE$")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
