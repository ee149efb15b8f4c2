"""The main job on one screen: a pipeline file brings two topics into a table and a topic of alerts.

A cluster, a shop that sends orders and payments (some late, some twice, some broken), the command
`orbitmq pipeline run`, and a plain consumer. In the end everything is compared with what was sent.
It ends by itself, and leaves a folder with the table and the report.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow.dataset
from rich.console import Console
from rich.table import Table

from orbitmq.client import Message, Producer, PushConsumer, ReceivedMessage
from orbitmq.clock import SystemClock
from orbitmq.embedded import Cluster

FILE: Final = Path(__file__).with_name("shop.yaml")
ORDERS, PAYMENTS, ALERTS = "orders", "payments", "alerts"
# In each tick, of a twentieth of a second, so many orders arrive, mostly of one item.
TICK_S: Final = 0.05
ORDERS_A_TICK: Final = 4
ITEMS: Final = {"tea": 4, "coffee": 5, "cake": 7}
RUSH_S: Final = 10
# As the file has them.
WINDOW_MS: Final = 5000
RUSH_ORDERS: Final = 100
PAID_WITHIN_MS: Final = 20_000
# How late an order is that is too late, and how far later the last messages are, so that all
# windows end.
LATE_MS: Final = 600_000
CLOSING_MS: Final = 60_000
# For a Java that runs two minutes: compile quickly rather than well.
QUICK_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# How long the pipeline may take to come up, and to do what is left.
PATIENCE_S: Final = 300
SHOWN: Final = 4


@dataclass
class Sent:
    """What was sent, and so what must come out."""

    orders: dict[int, tuple[str, int]] = field(default_factory=dict)
    paid: set[int] = field(default_factory=set)
    wrong: Counter[str] = field(default_factory=Counter)
    again: int = 0
    late: int = 0

    def rushes(self) -> dict[tuple[str, int], int]:
        """Orders of each item and window of which there are enough for an alert."""
        counts = Counter(
            (item, placed_ms // WINDOW_MS * WINDOW_MS) for item, placed_ms in self.orders.values()
        )
        return {key: count for key, count in counts.items() if count >= RUSH_ORDERS}


class Shop:
    """Sends orders and payments until it is closed."""

    def __init__(self, producer: Producer) -> None:
        self.sent = Sent()
        self._producer = producer
        self._clock = SystemClock()
        self._chance = random.Random(7)  # noqa: S311  # no secret
        self._closed = threading.Event()
        self._number = 0

    @contextmanager
    def open(self) -> Iterator[None]:
        """Sell in the background."""
        thread = threading.Thread(target=self._sell, name="shop")
        thread.start()
        try:
            yield
        finally:
            self._closed.set()
            thread.join()

    def close(self) -> None:
        """Send what ends all windows: an order and a payment that are later than all others."""
        later_ms = self._clock.now_ms() + CLOSING_MS
        self._number += 1
        self._send(ORDERS, [{"id": self._number, "item": "tea", "price": 4, "placed": later_ms}])
        self._send(PAYMENTS, [{"order_id": -1, "amount": 0, "paid": later_ms}])

    def _sell(self) -> None:
        unpaid: list[int] = []
        while not self._closed.wait(TICK_S):
            orders = [self._order() for _ in range(ORDERS_A_TICK)]
            chance = self._chance.random()
            if chance < 0.2:
                orders.append(orders[0])
                self.sent.again += 1
            elif chance < 0.25:
                orders.append({**orders[0], "id": -self._number, "price": 0})
                self.sent.wrong["not has_a_price"] += 1
            elif chance < 0.3:
                orders.append({**orders[0], "id": -self._number, "placed": self._now(-LATE_MS)})
                self.sent.late += 1
            self._send(ORDERS, orders)
            if chance > 0.95:
                self._producer.send(Message(ORDERS, '{"id": 7, "item": "te'))
                self.sent.wrong["cannot be decoded"] += 1
            # Those of the tick before: money takes a moment, and some never comes.
            self._pay([number for number in unpaid if self._chance.random() < 0.9])
            unpaid = [int(str(order["id"])) for order in orders[:ORDERS_A_TICK]]

    def _order(self) -> dict[str, object]:
        self._number += 1
        placed_ms = self._now()
        wanted = list(ITEMS)[placed_ms // (RUSH_S * 1000) % len(ITEMS)]
        item = wanted if self._chance.random() < 0.8 else self._chance.choice(list(ITEMS))
        self.sent.orders[self._number] = item, placed_ms
        return {"id": self._number, "item": item, "price": ITEMS[item], "placed": placed_ms}

    def _pay(self, numbers: list[int]) -> None:
        paid_ms = self._now()
        payments: list[dict[str, object]] = []
        for number in numbers:
            item, placed_ms = self.sent.orders[number]
            if paid_ms <= placed_ms + PAID_WITHIN_MS:
                self.sent.paid.add(number)
            payments.append({"order_id": number, "amount": ITEMS[item], "paid": paid_ms})
        self._send(PAYMENTS, payments)

    def _now(self, later_ms: int = 0) -> int:
        return self._clock.now_ms() + later_ms

    def _send(self, topic: str, rows: list[dict[str, object]]) -> None:
        messages = [Message(topic, json.dumps(_with_times(row))) for row in rows]
        if messages:
            self._producer.send(messages)


def _with_times(row: dict[str, object]) -> dict[str, object]:
    return {
        name: time_text(value) if name in {"placed", "paid"} and isinstance(value, int) else value
        for name, value in row.items()
    }


def time_text(at_ms: int) -> str:
    """A moment as JSON has it."""
    moment = datetime.datetime.fromtimestamp(at_ms / 1000, tz=datetime.UTC)
    return moment.isoformat(timespec="milliseconds")


@dataclass
class Bell:
    """A consumer: keeps the alerts."""

    alerts: list[dict[str, str]] = field(default_factory=list)

    def ring(self, message: ReceivedMessage) -> None:
        """Take an alert."""
        self.alerts.append(json.loads(message.body))

    def rushes(self) -> dict[tuple[str, int], int]:
        """As `Sent` has them."""
        return {(alert["item"], _ms(alert["since"])): int(alert["orders"]) for alert in self.alerts}


def _ms(text: str) -> int:
    return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)


class Pipeline:
    """The command that runs the file, and what it has written so far."""

    def __init__(self, folder: Path, namesrv: str, console: Console) -> None:
        self.folder = folder
        self.report = folder / "report.html"
        self._events = folder / "events.jsonl"
        file = folder / FILE.name
        file.write_text(FILE.read_text().replace("127.0.0.1:9876", namesrv))
        command = Path(sys.executable).with_name("orbitmq")
        self.words = ["pipeline", "run", str(file), "--report", str(self.report)]
        # Spark's processes have last words, however gently they are ended.
        self._errors = folder / "errors.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603  # our own command
                [str(command), *self.words, "--events", str(self._events)],
                # Without a terminal it would write a line for each batch.
                stdout=None if console.is_terminal else subprocess.DEVNULL,
                stderr=errors,
                env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
            )

    def is_under_way(self) -> bool:
        """Whether each sink has had a batch with rows."""
        found = set()
        for line in self._events.read_text().splitlines() if self._events.exists() else ():
            event = json.loads(line) if line.endswith("}") else {}
            if event.get("rows") and event["event"] == "batch":
                found.add(event["query"])
        return {"paid", "alerts"} <= found

    def paid(self) -> pyarrow.Table:
        """The table."""
        return self._table("tables/paid", ["id", "item", "price", "paid"])

    def reasons(self) -> Counter[str]:
        """Why rows are in quarantine."""
        table = self._table(f"shop.state/quarantine/{ORDERS}", ["reason"])
        return Counter(table.column("reason").to_pylist())

    def wait_until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait for something; not for ever, and only while the command runs."""
        clock, pause = SystemClock(), threading.Event()
        end_ms = clock.monotonic_ms() + seconds * 1000
        while self._process.poll() is None and clock.monotonic_ms() < end_ms:
            if is_so():
                return True
            pause.wait(0.5)
        return False

    def errors(self) -> str:
        """The end of what the command said is wrong."""
        return self._errors.read_text(errors="replace")[-2000:]

    def stop(self) -> int:
        """Let it finish the batches at hand."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _table(self, path: str, columns: list[str]) -> pyarrow.Table:
        """The rows of whole batches: Spark's log of the folder says which files those are."""
        files = {
            str(self.folder / path / json.loads(line)["path"].rpartition("/")[2])
            for batch in (self.folder / path / "_spark_metadata").glob("[0-9]*")
            for line in batch.read_text().splitlines()[1:]
        }
        if not files:
            return pyarrow.table({name: [] for name in columns})
        return pyarrow.dataset.dataset(sorted(files)).to_table(columns)


@contextmanager
def running(folder: Path, namesrv: str, console: Console) -> Iterator[Pipeline]:
    """Run the pipeline; it has ended afterwards, whatever happens."""
    pipeline = Pipeline(folder, namesrv, console)
    try:
        yield pipeline
    finally:
        pipeline.stop()


def demo(cluster: Cluster, folder: Path, seconds: float, console: Console) -> bool:
    """Run everything for a while; return whether output matches input."""
    for topic in (ORDERS, PAYMENTS, ALERTS):
        cluster.create_topic(topic)
    bell = Bell()
    consumer = PushConsumer(
        "bell", on_message=bell.ring, namesrv=cluster.namesrv, consume_from="first"
    )
    consumer.subscribe(ALERTS)
    with Producer("shop", namesrv=cluster.namesrv) as producer, consumer:
        shop = Shop(producer)
        with running(folder, cluster.namesrv, console) as pipeline:
            console.print(f"[bold]1[/] a cluster at {cluster.namesrv}, a shop that sends orders and "
                          f"payments, and\n  [cyan]orbitmq {' '.join(pipeline.words)}[/]",
                          soft_wrap=True)  # fmt: skip
            with shop.open():
                pipeline.wait_until(pipeline.is_under_way, PATIENCE_S)
                pipeline.wait_until(lambda: False, seconds)
            shop.close()
            sent = shop.sent
            is_complete = pipeline.wait_until(
                lambda: (
                    pipeline.paid().num_rows >= len(sent.paid)
                    and pipeline.reasons().total() >= sent.wrong.total()
                    and len(bell.alerts) >= len(sent.rushes())
                ),
                PATIENCE_S,
            )
            code = pipeline.stop()
    show(pipeline, bell, sent, console)
    if code:
        console.print(pipeline.errors(), markup=False)
    return (
        is_complete
        and code == 0
        and sorted(pipeline.paid().column("id").to_pylist()) == sorted(sent.paid)
        and pipeline.reasons() == sent.wrong
        and bell.rushes() == sent.rushes()
        and len(bell.alerts) == len(sent.rushes())
    )


def show(pipeline: Pipeline, bell: Bell, sent: Sent, console: Console) -> None:
    """Show both ends of the pipeline."""
    console.print(
        f"[bold]2[/] sent: {len(sent.orders)} orders, {len(sent.paid)} of them paid in time; "
        f"{sent.again} orders twice, {sent.late} too late, {sent.wrong.total()} wrong"
    )
    paid = pipeline.paid()
    table = Table(title=f"table: {paid.num_rows} paid orders")
    for column in paid.column_names:
        table.add_column(column)
    for row in paid.sort_by([("id", "descending")]).slice(0, SHOWN).to_pylist():
        table.add_row(str(row["id"]), row["item"], str(row["price"]), f"{row['paid']:%H:%M:%S}")
    alerts = Table(title=f"topic {ALERTS}: {len(bell.alerts)} rushes")
    for column in ("since", "item", "orders"):
        alerts.add_column(column)
    for (item, since_ms), count in sorted(bell.rushes().items(), key=lambda one: -one[0][1])[
        :SHOWN
    ]:
        alerts.add_row(time_text(since_ms)[11:19], item, str(count))
    both = Table.grid(padding=(0, 2))
    both.add_row(table, alerts)
    console.print(both)
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(pipeline.reasons().items()))
    console.print(f"[bold]3[/] in quarantine: {reasons or 'nothing'}")


def empty_folder(folder: Path) -> Path:
    """Make the folder of results anew; one that is not a demo's is left alone."""
    if folder.exists():
        if not (folder / FILE.name).exists() and any(folder.iterdir()):
            sys.exit(f"{folder} has something else in it: name another folder with --folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder.absolute()


def main() -> int:
    """Read the command line, run it, and say whether all is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15, help="that it runs once it is up")
    parser.add_argument("--folder", type=Path, default=Path("demo-results"), help="for its results")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    console, folder = Console(), empty_folder(chosen.folder)
    with Cluster() as cluster:
        is_right = demo(cluster, folder, chosen.seconds, console)
    verdict = "as they should be" if is_right else "[red]NOT as they should be[/]"
    console.print(
        f"[bold]4[/] all rows, alerts and rejected messages are {verdict}, each once. What the "
        f"pipeline did:\n  [cyan]{chosen.folder / 'report.html'}[/]",
        soft_wrap=True,
    )
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
