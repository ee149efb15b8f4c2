"""A Spark on this machine, set up for topics.

    spark = session()
    spark.read.format("rocketmq").option("namesrvAddr", "127.0.0.1:9876")

A process has one session: a second call gives the same one, and changes only those of its settings
that can change while it runs.
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

from orbitmq.spark.sessions.java_runtime import cache_folder, find_java_home
from orbitmq.spark.sessions.spark_home import light_home

# How often a task is tried before its query fails; Spark's own default for one machine is once.
TASK_TRIES: Final = 3
# Of Spark's log, errors are shown, unless the user has a folder of settings for it.
_LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_UNIX_SOCKETS: Final = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "orbitmq.spark.sessions.worker_daemon",
}
# What is set unless the caller says otherwise, by Spark's names.
SETTINGS: Final[Mapping[str, str]] = {
    # Nobody but this machine talks to it.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # No web server, and no progress bar.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Times look the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    # Perf: Arrow for Java compares every access with the bounds of its buffer unless it is told not
    # to, which costs scans of small rows a fifth of their CPU (benchmarks/spark_store_scan.py). Only our
    # own workers send it Arrow here.
    "spark.driver.defaultJavaOptions": (
        "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    ),
    # Perf: over TCP, Spark sends a worker the work of a task in two parts, and the second waits 40 ms
    # until the system confirms the first (strace of a worker; Nagle's algorithm).
    **(_UNIX_SOCKETS if hasattr(socket, "AF_UNIX") else {}),
    # Without it the option `pushFilters` has no effect.
    "spark.sql.python.filterPushdown.enabled": "true",
    # Tables go to and from pandas as Arrow.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}
# How Spark writes the files of checkpoints: under another name, which is then changed.
# Perf: its own choice starts a process for each look at where a path leads, 16 of the 20 that a
# micro-batch starts (counted by Java's flight recorder), and more than a third of the processor time
# of one with next to nothing to read. This one, Spark's as well, does not look.
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
    """Give a SparkSession on this machine; starts it with a Java from PyPI if there is no other.

    Args:
        name: the name of the application.
        cores: how many tasks run at a time, and how many partitions a shuffle makes; unless
            given, as many as there are cores.
        settings: settings of Spark, by its names; they win over those made here.

    Raises:
        SettingsError: there is no Java to run it on.
    """
    if SparkContext._active_spark_context is None:
        os.environ.update(environment_for(os.environ))
    builder = SparkSession.builder.appName(name)
    for key, value in settings_for(cores or os.cpu_count() or 1, settings or {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not spark.conf.get(_CHECKPOINT_FILES, ""):
        _lighten_checkpoints(spark)
    return spark


def _lighten_checkpoints(spark: SparkSession) -> None:
    """Write checkpoints in the cheaper way, if this version of Spark has it in its place."""
    java = spark.sparkContext._jvm
    assert java is not None
    with contextlib.suppress(Py4JJavaError):
        java.java.lang.Class.forName(_BY_FILE_SYSTEM)
        spark.conf.set(_CHECKPOINT_FILES, _BY_FILE_SYSTEM)


def settings_for(cores: int, given: Mapping[str, str]) -> dict[str, str]:
    """Say how Spark is set up, by its names; what is given wins."""
    return {
        **SETTINGS,
        "spark.master": f"local[{cores},{TASK_TRIES}]",
        # Queries with state keep this number for good: it is written to their checkpoint.
        "spark.sql.shuffle.partitions": str(cores),
        **given,
    }


def environment_for(present: Mapping[str, str]) -> dict[str, str]:
    """Say what Spark has to find in its environment; what is there wins, but for an old Java."""
    wanted = {
        # Workers run what this process runs, so that they find what is installed beside it.
        "PYSPARK_PYTHON": sys.executable,
        # Otherwise its first words are a warning about the addresses of this machine.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if "SPARK_CONF_DIR" not in present:
        wanted["LOG4J_CONFIGURATION_FILE"] = str(_LOG_SETTINGS)
    if not {"SPARK_HOME", "PYSPARK_PYTHON"} & present.keys():
        # A cache that cannot be written costs time, and no more.
        with contextlib.suppress(OSError):
            home = light_home(Path(pyspark.__file__).parent, cache_folder(present))
            wanted["SPARK_HOME"] = str(home)
    return {**wanted, **present, "JAVA_HOME": str(find_java_home(present))}
