"""The daemon of a session's workers: it forks them as Spark's does."""

from __future__ import annotations

import inspect
import subprocess
import sys

from pyspark import daemon


def test_sparks_daemon_still_calls_its_workers_the_same_way() -> None:
    assert [*inspect.signature(daemon.worker).parameters] == ["sock", "authenticated"]
    assert "worker(sock, authenticated)" in inspect.getsource(daemon.manager)


def test_it_prints_its_port_and_ends_when_its_input_closes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq.spark.sessions.worker_daemon", "pyspark.worker"],
        input=b"",
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert 0 < int.from_bytes(done.stdout) < 65536
    assert done.stderr == b""
