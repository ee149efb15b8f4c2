"""The HTTP server that Prometheus scrapes."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from orbitmq.broker.statistics.prometheus import Prometheus
from orbitmq.disk import off_loop
from tests.unit.broker.parts import broker_parts
from tests.unit.broker.statistics.test_metrics import metrics_of


def _read(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text: bytes = answer.read()
    return text.decode()


async def test_metrics_are_read_over_http_while_the_counters_grow(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        prometheus = Prometheus(metrics_of(parts), host="127.0.0.1", port=0)
        await prometheus.start()
        scraping = [asyncio.create_task(off_loop(_read, prometheus.port)) for _ in range(4)]

        number = 0
        while not all(scrape.done() for scrape in scraping):
            parts.counters.put(f"topic-{number % 5000}").add(1, 10)
            number += 1
            if number % 100 == 0:
                await parts.clock.advance(0)
        texts = [await scrape for scrape in scraping]
        await prometheus.stop()

        assert all("# TYPE rocketmq_messages_in_total counter" in text for text in texts)
        assert all('rocketmq_broker_permission{cluster="c"' in text for text in texts)


async def test_the_port_is_closed_after_a_stop(tmp_path: Path) -> None:
    async with broker_parts(tmp_path) as parts:
        prometheus = Prometheus(metrics_of(parts), host="127.0.0.1", port=0)
        await prometheus.start()
        await prometheus.stop()
        await prometheus.stop()

        with pytest.raises(urllib.error.URLError):
            await off_loop(_read, prometheus.port)
