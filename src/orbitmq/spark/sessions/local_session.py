"""A Spark session on this machine, set up for topics.

    spark = session()
    spark.read.format("rocketmq").option("namesrvAddr", "127.0.0.1:9876")

A process has one session: a second call returns it, and changes only settings that can change while
it runs.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from orbitmq.spark.sessions.active_session import activate
from orbitmq.spark.sessions.java_runtime import cache_folder, find_java_home, without_warning
from orbitmq.spark.sessions.spark_home import light_home

# Attempts of a task before its query fails; Spark's own default on one machine is one.
TASK_ATTEMPTS: Final = 3
# Shows only errors of Spark's log, unless the user has a folder of settings for it.
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_UNIX_SOCKETS: Final = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "orbitmq.spark.sessions.worker_daemon",
}
# Our defaults, by Spark's names.
SETTINGS: Final[Mapping[str, str]] = {
    # Binds to localhost.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # No web server, and no progress bar.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Timestamps show the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    # Perf: by default Arrow for Java checks every access against the bounds of its buffer, which
    # costs scans of small rows a fifth of their CPU (benchmarks/spark_store_scan.py). Only our own
    # workers send it Arrow here.
    "spark.driver.defaultJavaOptions": (
        "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    ),
    # Perf: over TCP, Spark sends a task to a worker in two parts, and the second waits 40 ms for the
    # acknowledgement of the first (strace of a worker; Nagle's algorithm).
    **(_UNIX_SOCKETS if hasattr(socket, "AF_UNIX") else {}),
    # Required by the option `pushFilters`.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Converts to and from pandas as Arrow.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
# How Spark writes checkpoint files: under a temporary name, then renamed.
# Perf: its default starts a process each time it resolves a path, 16 of the 20 that a micro-batch
# starts (counted by Java's flight recorder), and more than a third of the processor time of one with
# next to nothing to read. This one, also Spark's, resolves none.
_CHECKPOINT_FILES: Final = "spark.sql.streaming.checkpointFileManagerClass"
_BY_FILE_SYSTEM: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def session(
    name: str = "orbitmq",
    *,
    cores: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a SparkSession on this machine; uses a Java from PyPI if there is no other.

    Args:
        name: the name of the application.
        cores: how many tasks run at a time, and how many partitions a shuffle makes; by default
            the number of cores.
        settings: Spark settings, by Spark's names; they override those made here.

    Raises:
        SettingsError: no suitable Java was found.
    """
    if SparkContext._active_spark_context is None:
        os.environ.update(environment_for(os.environ))
    builder = SparkSession.builder.appName(name)
    for key, value in settings_for(cores or os.cpu_count() or 1, settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not spark.conf.get(_CHECKPOINT_FILES, ""):
        _lighten_checkpoints(spark)
    activate(spark)
    return spark


def _lighten_checkpoints(spark: SparkSession) -> None:
    """Write checkpoints in the cheaper way, if this version of Spark has that class."""
    java = spark.sparkContext._jvm
    assert java is not None
    with contextlib.suppress(Py4JJavaError):
        java.java.lang.Class.forName(_BY_FILE_SYSTEM)
        spark.conf.set(_CHECKPOINT_FILES, _BY_FILE_SYSTEM)


def settings_for(cores: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return all settings of a session, by Spark's names; `given` overrides ours."""
    return {
        **SETTINGS,
        "spark.master": f"local[{cores},{TASK_ATTEMPTS}]",
        # Stateful queries never change this number: it is written to their checkpoint.
        "spark.sql.shuffle.partitions": str(cores),
        **given,
    }


def environment_for(present: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for Spark; `present` overrides all but an old Java."""
    wanted = {
        # Workers run this process's Python, so that they find the same packages.
        "PYSPARK_PYTHON": sys.executable,
        # Otherwise Spark starts with a warning about this machine's addresses.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if "SPARK_CONF_DIR" not in present:
        wanted["LOG4J_CONFIGURATION_FILE"] = str(_LOG_SETTINGS)
    if not {"SPARK_HOME", "PYSPARK_PYTHON"} & present.keys():
        # An unwritable cache only costs time.
        with contextlib.suppress(OSError):
            home = light_home(Path(pyspark.__file__).parent, cache_folder(present))
            wanted["SPARK_HOME"] = str(home)
    java_home = without_warning(find_java_home(present), cache_folder(present))
    return {**wanted, **present, "JAVA_HOME": str(java_home)}
