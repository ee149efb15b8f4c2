"""Measures how far a reader beside an official broker is behind what the broker stores.

Run by hand, about three minutes: `python -m tests.interop.reader_lag`. Every broker runs with its
own flush settings. A producer sends without a pause; a reader looks every 50 ms and notes for each
record that it sees for the first time how long ago the broker stored it.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
from pathlib import Path

from orbitmq.clock import SystemClock
from orbitmq.record.decode import decode_record
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from tests.interop import building
from tests.interop.drivers import JavaDriver
from tests.interop.official import OfficialBroker
from tests.interop.ours import OrbitNameServer

LOOK_INTERVAL_S = 0.05
SEND_INTERVAL_S = 0.1
SECONDS = 180


def measure(line: str, folder: Path, name_server: str, seconds: int) -> str:
    """Measure one line; returns a line of text."""
    clock = SystemClock()
    broker = OfficialBroker(line, f"lagging-{line}", folder / "broker", [name_server])
    driver = JavaDriver(line, folder / "driver").start()
    broker.process.start()
    over = threading.Event()
    try:
        broker.wait_ready()
        topic = f"reader-lag-{line}"
        broker.create_topic(topic)
        driver.open_producer(topic, name_server)

        def send() -> None:
            while not over.wait(SEND_INTERVAL_S):
                driver.send(topic, topic, 5)

        sender = threading.Thread(target=send)
        begin_ms = clock.now_ms()
        sender.start()
        lags_ms: list[int] = []
        first_ms = 0
        with ReadOnlyStore(folder / "broker" / "store") as store:
            seen = store.end
            while clock.now_ms() < begin_ms + seconds * 1000:
                end = store.refresh()
                now_ms = clock.now_ms()
                if end > seen:
                    first_ms = first_ms or now_ms - begin_ms
                    lags_ms += [
                        now_ms - decode_record(record).store_ms
                        for _, record in store.records(seen, end)
                    ]
                    seen = end
                over.wait(LOOK_INTERVAL_S)
        over.set()
        sender.join()
    finally:
        over.set()
        driver.stop()
        broker.process.kill()
    if not lags_ms:
        return f"{line}: nothing was seen in {seconds} s"
    return (
        f"{line}: {len(lags_ms)} records in {seconds} s; first seen after {first_ms} ms; "
        f"lag median {statistics.median(lags_ms):.0f} ms, max {max(lags_ms)} ms, "
        f"min {min(lags_ms)} ms"
    )


def main() -> None:
    """Measure every line at the same time."""
    building.build_java()
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        name_server = OrbitNameServer(folder / "name-server")
        name_server.process.start()
        results: dict[str, str] = {}

        def run(line: str) -> None:
            results[line] = measure(line, folder / line, name_server.address, seconds)

        try:
            name_server.wait_ready()
            threads = [threading.Thread(target=run, args=(line,)) for line in building.LINES]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            name_server.process.kill()
    for line in building.LINES:
        sys.stdout.write(f"{results.get(line, f'{line}: failed')}\n")


if __name__ == "__main__":
    main()
