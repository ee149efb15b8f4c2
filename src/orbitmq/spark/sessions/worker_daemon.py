"""The daemon that a session's Python workers are forked from: Spark's, but quiet.

    python -m orbitmq.spark.sessions.worker_daemon pyspark.worker

Spark plans queries in processes of its own daemon, whatever daemon is configured. Those that read
topics become quiet when they import `orbitmq.spark`.
"""

from __future__ import annotations

from pyspark import daemon

from orbitmq.spark.sessions.worker_process import log_with_times, silence_exits

if __name__ == "__main__":
    silence_exits(daemon)
    # The package was imported before Python knew that this is the main module.
    log_with_times()
    daemon.manager()
