"""The metrics of a run, for Prometheus, over HTTP.

Threads: the HTTP server has its own; a scrape reads the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orbitmq.errors import SettingsError
from orbitmq.pipelines.watching.run_record import RunRecord

_PREFIX: Final = "orbitmq_pipeline_"
_LABELS: Final = ("pipeline", "query")
_COUNTERS: Final = {
    "rows": "rows that were read",
    "batches": "batches that were done",
    "batch_seconds": "time that batches took",
    "late_rows": "rows that came too late for windows and joins",
    "restarts": "starts after a failure that says nothing about the pipeline",
}
_GAUGES: Final = {
    "query_up": "1 while the query runs",
    "last_batch_seconds": "how long the newest batch took",
    "input_rows_per_second": "rows that arrived a second, by the newest batch",
    "processed_rows_per_second": "rows that were processed a second, by the newest batch",
    "lag_messages": "messages that are stored and not processed",
    "behind_seconds": "since the oldest message was stored that is not processed",
    "state_rows": "rows in the state of windows, joins and deduplication",
    "state_bytes": "memory of that state",
}


@contextmanager
def serving(record: RunRecord, *, host: str, port: int) -> Iterator[int]:
    """Serve the metrics of a run; gives the port, which is a free one for 0."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_OnScrape(record))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise SettingsError(
            f"cannot serve metrics at {host}:{port}: {error.strerror}",
            hint="give a free address with --metrics-port and --metrics-host",
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _OnScrape(Collector):
    def __init__(self, record: RunRecord) -> None:
        self._record = record

    def describe(self) -> list[Metric]:
        """Return nothing: otherwise the registry would collect at once."""
        return []

    def collect(self) -> list[Metric]:
        """Make the metrics of this moment."""
        with self._record.lock:
            return families(self._record)


def families(record: RunRecord) -> list[Metric]:
    """All metrics of a run."""
    counters = {
        name: CounterMetricFamily(f"{_PREFIX}{name}", text, labels=_LABELS)
        for name, text in _COUNTERS.items()
    }
    gauges = {
        name: GaugeMetricFamily(f"{_PREFIX}{name}", text, labels=_LABELS)
        for name, text in _GAUGES.items()
    }
    rejected = CounterMetricFamily(
        f"{_PREFIX}quarantined_rows", "rows in quarantine", labels=(*_LABELS, "reason")
    )
    for query in record.queries.values():
        labels = (record.pipeline, query.name)
        for name, count in {
            "rows": query.rows,
            "batches": query.batches,
            "batch_seconds": query.took_ms / 1000,
            "late_rows": query.late_rows,
            "restarts": query.restarts,
        }.items():
            counters[name].add_metric(labels, count)
        is_up = query.is_started and not query.failure and record.outcome is None
        gauges["query_up"].add_metric(labels, is_up)
        for reason, count in query.rejected.items():
            rejected.add_metric((*labels, reason), count)
        if query.lag is not None:
            gauges["lag_messages"].add_metric(labels, query.lag)
        if query.behind_s is not None:
            gauges["behind_seconds"].add_metric(labels, query.behind_s)
        if query.last is not None:
            last = query.last
            gauges["last_batch_seconds"].add_metric(labels, last.took_ms / 1000)
            gauges["input_rows_per_second"].add_metric(labels, last.input_rows_per_s)
            gauges["processed_rows_per_second"].add_metric(labels, last.processed_rows_per_s)
            gauges["state_rows"].add_metric(labels, last.state_rows)
            gauges["state_bytes"].add_metric(labels, last.state_bytes)
    return [*counters.values(), *gauges.values(), rejected, _queue_lag(record)]


def _queue_lag(record: RunRecord) -> Metric:
    family = GaugeMetricFamily(
        f"{_PREFIX}queue_lag_messages",
        "messages of a queue that are stored and not processed",
        labels=(*_LABELS, "queue"),
    )
    for query in record.queries.values():
        for queue, lag in query.lagging_queues.items():
            family.add_metric((record.pipeline, query.name, queue), lag)
    return family
