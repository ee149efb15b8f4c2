"""What does tracing cost a producer and a consumer?

    python -m benchmarks.client_tracing [--rounds N] [--smoke]

Our asyncio clients at our broker, which is a process of its own; 128-byte messages. A slice ends
when the client has stopped, so that all its traces are written. The spans of OpenTelemetry go
through its SDK to an exporter that drops them.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.brokers import BrokerUnderLoad, our_broker, running_name_server
from benchmarks.rounds import Form, measure, options, report
from orbitmq.client import Message, ReceivedMessage
from orbitmq.client.aio import Producer, PushConsumer

TOPIC: Final = "benchmark_tracing"
TRACES: Final = "benchmark_traces"
MESSAGES: Final = 20_000
IN_FLIGHT: Final = 64
WITHOUT: Final = "without"
KINDS: Final[dict[str, dict[str, Any]]] = {
    WITHOUT: {},
    "trace": {"trace": True, "trace_topic": TRACES},
    "opentelemetry": {"opentelemetry": True},
}
_groups: Final = itertools.count()


class DroppingExporter(SpanExporter):
    """Drops all spans."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Say that they are exported."""
        del spans
        return SpanExportResult.SUCCESS


async def send(namesrv: str, count: int, tracing: dict[str, Any]) -> int:
    """Send messages, many at a time."""
    message = Message(TOPIC, bytes(128), keys="order-7")
    async with Producer("tracing", namesrv=namesrv, **tracing) as producer:

        async def one_after_the_other() -> None:
            for _ in range(count // IN_FLIGHT):
                await producer.send(message)

        await asyncio.gather(*(one_after_the_other() for _ in range(IN_FLIGHT)))
        if (counts := producer.trace_counts) is not None and counts.dropped:
            print(f"traces were dropped: {counts}")
    return count // IN_FLIGHT * IN_FLIGHT


async def consume(namesrv: str, count: int, tracing: dict[str, Any]) -> int:
    """Consume the first messages of the topic, as a new group."""
    seen, done = itertools.count(1), asyncio.Event()

    async def listen(_: ReceivedMessage) -> None:
        if next(seen) == count:
            done.set()

    consumer = PushConsumer(
        f"tracing-{next(_groups)}",
        on_message=listen,
        consume_from="first",
        namesrv=namesrv,
        **tracing,
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        await done.wait()
    return count


def forms(work: Any, namesrv: str, count: int) -> dict[str, Form]:
    """The same work without tracing and with each kind of it."""

    def run(tracing: dict[str, Any]) -> int:
        running: Coroutine[Any, Any, int] = work(namesrv, count, tracing)
        return asyncio.run(running)

    return {name: partial(run, tracing) for name, tracing in KINDS.items()}


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare clients that trace with those that do not.", rounds=7)
    count = MESSAGES // 20 if chosen.smoke else MESSAGES
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(DroppingExporter()))
    trace.set_tracer_provider(provider)
    measured = []
    with tempfile.TemporaryDirectory() as folder, running_name_server(Path(folder, "ns")) as names:
        broker: BrokerUnderLoad = our_broker(Path(folder, "broker"), names, "ASYNC_FLUSH")
        broker.broker.process.start()
        try:
            broker.broker.wait_ready()
            broker.create_topics([TOPIC, TRACES])
            for workload, work in ((f"{IN_FLIGHT} sends at a time", send), ("listener", consume)):
                measured += measure(
                    workload,
                    forms(work, names, count),
                    baseline=WITHOUT,
                    rounds=1 if chosen.smoke else chosen.rounds,
                    seed=chosen.seed,
                )
        finally:
            broker.broker.process.kill()
    provider.shutdown()
    report("client_tracing", measured, kept=not chosen.smoke)


if __name__ == "__main__":
    main()
