"""Lag, from Spark's report of a batch."""

from __future__ import annotations

import json
import logging
import uuid
from typing import Any

import pytest
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    SourceProgress,
    StreamingQueryProgress,
)

from orbitmq.model.queues import MessageQueue
from orbitmq.spark.reading.lag_listener import LagListener, QueryLag, lag_of
from orbitmq.spark.reading.offsets import StreamOffset

A = MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)
B = MessageQueue(topic="orders", broker_name="broker-b", queue_id=1)
QUERY_ID = uuid.UUID(int=7)
RUN_ID = uuid.UUID(int=8)


def text(**ends: int) -> str:
    queues = {"a": A, "b": B}
    offset = StreamOffset(base={}, queues={queues[name]: end for name, end in ends.items()})
    return json.dumps(offset.to_json())


def source(end: str | None, latest: str | None) -> SourceProgress:
    # As Spark converts it: a missing value becomes the text "None".
    return SourceProgress("a source", "None", str(end), str(latest), 0, 0.0, 0.0, {})


def progress(name: str | None, *sources: SourceProgress, batch: int = 3) -> QueryProgressEvent:
    made: Any = StreamingQueryProgress
    return QueryProgressEvent(
        made(
            id=QUERY_ID,
            runId=RUN_ID,
            name=name,
            timestamp="2026-01-01T00:00:00.000Z",
            batchId=batch,
            batchDuration=5,
            durationMs={},
            eventTime={},
            stateOperators=[],
            sources=list(sources),
            sink=None,
            numInputRows=0,
            inputRowsPerSecond=0.0,
            processedRowsPerSecond=0.0,
            observedMetrics={},
        )
    )


def test_lag_is_the_distance_between_the_end_of_the_batch_and_the_end_of_the_queue() -> None:
    assert lag_of([source(text(a=5, b=9), text(a=7, b=9))]) == {A: 2, B: 0}


def test_a_queue_that_the_batch_does_not_know_yet_counts_in_full() -> None:
    assert lag_of([source(text(a=5), text(a=5, b=4))]) == {A: 0, B: 4}


def test_the_slower_of_two_sources_of_a_queue_counts() -> None:
    sources = [source(text(a=5), text(a=9)), source(text(a=8), text(a=9))]

    assert lag_of(sources) == {A: 4}


@pytest.mark.parametrize("latest", [None, "null", "", '{"orders":{"0":7}}', "7", "{", '{"v":9}'])
def test_missing_offsets_and_other_sources_have_no_lag(latest: str | None) -> None:
    assert lag_of([source(text(a=5), latest)]) is None


def test_the_listener_shows_the_lag_of_each_query_by_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reported: list[QueryLag] = []
    listener = LagListener(reported.append)
    listener.onQueryStarted(QueryStartedEvent(QUERY_ID, RUN_ID, "to table", "then", set()))

    with caplog.at_level(logging.INFO):
        listener.onQueryProgress(progress("to table", source(text(a=5, b=2), text(a=7, b=9))))

    assert listener.lags == {"to table": QueryLag(query="to table", batch=3, queues={A: 2, B: 7})}
    assert reported == [listener.lags["to table"]]
    assert reported[0].rows == 9
    assert "lag query=to table batch=3 rows=9 worst=orders/broker-b/1 rows_of_worst=7" in (
        caplog.messages
    )


def test_a_batch_without_lag_keeps_the_previous_one() -> None:
    listener = LagListener()
    listener.onQueryProgress(progress("to table", source(text(a=5), text(a=7)), batch=1))

    listener.onQueryProgress(progress("to table", source(text(a=6), None), batch=2))
    listener.onQueryIdle(QueryIdleEvent(QUERY_ID, RUN_ID, "then"))

    assert listener.lags["to table"].batch == 1


def test_a_query_without_a_name_is_known_by_its_id_until_it_ends() -> None:
    listener = LagListener()
    listener.onQueryStarted(QueryStartedEvent(QUERY_ID, RUN_ID, None, "then", set()))
    listener.onQueryProgress(progress(None, source(text(), text())))
    assert listener.lags[str(QUERY_ID)].rows == 0

    listener.onQueryTerminated(QueryTerminatedEvent(QUERY_ID, RUN_ID, None, None))

    assert listener.lags == {}
