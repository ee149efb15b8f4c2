"""The main job on one screen: orders stream into a table, and their turnover back to a topic.

A cluster, a producer, two streaming queries of Spark and a plain consumer, all in this process
and in those that Spark starts. It ends by itself, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from orbitmq.client import Message, Producer, PushConsumer, ReceivedMessage
from orbitmq.embedded import Cluster
from orbitmq.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ORDERS = "orders"
TURNOVER = "turnover"
PRICES = {"tea": 4, "coffee": 5, "cake": 7}
COLUMNS = "time TIMESTAMP, id BIGINT, item STRING, price INT"
WINDOW = "2 seconds"
# How long a window waits for orders that come late.
LATENESS = "2 seconds"
ROWS_SHOWN = 6
# How long the last results may take.
PATIENCE_S = 300
STARTS_MAX = 4


def by_window(orders: DataFrame) -> DataFrame:
    """Count orders and add up prices, for windows of time."""
    from pyspark.sql import functions

    return orders.groupBy(functions.window("time", WINDOW)).agg(
        functions.count("*").alias("orders"), functions.sum("price").alias("turnover")
    )


@dataclass
class Shop:
    """A producer: sells something every few milliseconds."""

    producer: Producer
    sold: int = 0
    _closed: threading.Event = field(default_factory=threading.Event)

    def sell(self) -> None:
        """Send orders until the shop is closed."""
        chance = random.Random(7)  # noqa: S311  # no secret
        while not self._closed.wait(0.05):
            orders = []
            for number in range(self.sold, self.sold + 20):
                item = chance.choice(list(PRICES))
                body = json.dumps({"id": number, "item": item, "price": PRICES[item]})
                orders.append(Message(ORDERS, body, tags=item, keys=f"order-{number}"))
            self.producer.send(orders)
            self.sold += len(orders)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Sell in the background."""
        thread = threading.Thread(target=self.sell, name="shop")
        thread.start()
        try:
            yield
        finally:
            self._closed.set()
            thread.join()


@dataclass
class Till:
    """A consumer: keeps what Spark sent of each window, orders and turnover."""

    windows: dict[str, tuple[int, int]] = field(default_factory=dict)

    def take(self, message: ReceivedMessage) -> None:
        """Take the result of a window."""
        result = json.loads(message.body)
        self.windows[result["start"]] = result["orders"], result["turnover"]


def under_way(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query and let it make its first batch; start it again if it came up too slowly.

    Spark gives the Python process of a source ten seconds, however busy the machine is.
    """
    from pyspark.errors import StreamingQueryException

    starts_left = STARTS_MAX
    while True:
        query, deadline_s = start(), time.monotonic() + PATIENCE_S
        try:
            while query.lastProgress is None and time.monotonic() < deadline_s:
                query.awaitTermination(1)
        except StreamingQueryException as error:
            starts_left -= 1
            if not starts_left or "failed to connect back" not in str(error):
                raise
        else:
            return query


@dataclass
class Job:
    """The two streaming queries: topic to table, topic to window to topic."""

    spark: SparkSession
    namesrv: str
    folder: Path

    def start(self) -> Iterator[StreamingQuery]:
        """Start one after the other: each starts Python processes, which small machines feel."""
        for start in (self._to_table, self._to_topic):
            yield under_way(start)

    def table(self) -> DataFrame:
        """What is in the table so far."""
        path = self.folder / "table"
        path.mkdir(exist_ok=True)
        return self.spark.read.schema(COLUMNS).parquet(str(path))

    def closed_windows(self) -> dict[str, tuple[int, int]]:
        """Orders and turnover of each window that is over, by the table."""
        rows = (
            self.table()
            .transform(by_window)
            .join(self.table().selectExpr("max(time) AS newest"))
            .where(f"window.end <= newest - INTERVAL {LATENESS}")
            .selectExpr("to_json(struct(window.start)) AS start", "orders", "turnover")
        )
        return {
            json.loads(row.start)["start"]: (row.orders, row.turnover) for row in rows.collect()
        }

    def _orders(self) -> DataFrame:
        return (
            self.spark.readStream.format("rocketmq")
            .option("namesrvAddr", self.namesrv)
            .option("subscribe", ORDERS)
            .option("startingOffsets", "earliest")
            .load()
            .selectExpr(
                "storeTimestamp AS time",
                "from_json(CAST(body AS STRING), 'id BIGINT, item STRING, price INT') AS order",
            )
            .select("time", "order.*")
        )

    def _to_table(self) -> StreamingQuery:
        return (
            self._orders()
            .writeStream.format("parquet")
            .option("path", str(self.folder / "table"))
            .option("checkpointLocation", str(self.folder / "table-checkpoint"))
            .start()
        )

    def _to_topic(self) -> StreamingQuery:
        return (
            self._orders()
            .withWatermark("time", LATENESS)
            .transform(by_window)
            .selectExpr("to_json(struct(window.start, orders, turnover)) AS body")
            .writeStream.format("rocketmq")
            .option("namesrvAddr", self.namesrv)
            .option("topic", TURNOVER)
            .option("checkpointLocation", str(self.folder / "topic-checkpoint"))
            .start()
        )


@dataclass
class Screen:
    """What is shown: both ends of the job."""

    shop: Shop
    till: Till
    job: Job
    rows: int = 0
    newest: list[tuple[str, ...]] = field(default_factory=list)

    def look(self) -> Group:
        """Look at the table and at the topic."""
        table = self.job.table()
        self.rows = table.count()
        newest = table.orderBy("id", ascending=False).limit(ROWS_SHOWN).collect()
        self.newest = [
            (f"{row.time:%H:%M:%S}", str(row.id), row.item, str(row.price)) for row in newest
        ]
        return self.shown()

    def shown(self) -> Group:
        """Make tables of what was seen."""
        orders = Table(title=f"the Parquet table: {self.rows} rows, the newest", min_width=36)
        for column in ("time", "id", "item", "price"):
            orders.add_column(column)
        for row in self.newest:
            orders.add_row(*row)
        windows = sorted(self.till.windows.items(), reverse=True)
        results = Table(title=f"topic {TURNOVER}: {len(windows)} windows of {WINDOW}", min_width=36)
        for column in ("from", "orders", "turnover"):
            results.add_column(column)
        for start, (orders_sold, turnover) in windows[:ROWS_SHOWN]:
            results.add_row(start[11:19], str(orders_sold), str(turnover))
        both = Table.grid(padding=(0, 2))
        both.add_row(orders, results)
        return Group(f"[bold]2[/] topic {ORDERS}: {self.shop.sold} messages sent", both)


def wait_until_all_arrived(
    queries: list[StreamingQuery], job: Job, till: Till
) -> dict[str, tuple[int, int]]:
    """Let the queries read what is left, and the consumer get their last results."""
    for query in queries:
        query.processAllAvailable()
    windows = job.closed_windows()
    patience, deadline_s = threading.Event(), time.monotonic() + PATIENCE_S
    while till.windows.keys() < windows.keys() and time.monotonic() < deadline_s:
        patience.wait(0.1)
    return windows


def demo(cluster: Cluster, folder: Path, seconds: float, console: Console) -> bool:
    """Run everything for a while; return whether output matches input."""
    cluster.create_topic(ORDERS)
    cluster.create_topic(TURNOVER)
    console.print(f"[bold]1[/] a cluster listens on [cyan]{cluster.namesrv}[/], Spark starts ...")
    spark = session("demo")
    till = Till()
    consumer = PushConsumer(
        "till", on_message=till.take, namesrv=cluster.namesrv, consume_from="first"
    )
    consumer.subscribe(TURNOVER)
    job = Job(spark, cluster.namesrv, folder)
    with Producer("shop", namesrv=cluster.namesrv) as producer, consumer:
        shop = Shop(producer)
        screen = Screen(shop, till, job)
        with Live(screen.shown(), console=console, auto_refresh=False, transient=True) as live:
            with shop.open():
                queries = list(job.start())
                # Until the first result Spark only gets ready.
                end_s = time.monotonic() + PATIENCE_S
                while time.monotonic() < end_s:
                    live.update(screen.look(), refresh=True)
                    for query in queries:
                        query.awaitTermination(1)
                    if till.windows:
                        end_s = min(end_s, time.monotonic() + seconds)
            windows = wait_until_all_arrived(queries, job, till)
        console.print(screen.look())
    for query in queries:
        query.stop()
    spark.stop()
    verdict = "as" if till.windows == windows else "NOT as"
    console.print(
        f"[bold]3[/] {shop.sold} orders were sent, and the table has {screen.rows} rows. A consumer "
        f"got {len(till.windows)} windows from topic {TURNOVER}, {verdict} the table has them."
    )
    return shop.sold == screen.rows and till.windows == windows


def main() -> int:
    """Read the command line, and run it in a folder that goes away."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="that orders are shown for")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
        return 0 if demo(cluster, Path(folder), chosen.seconds, Console()) else 1


if __name__ == "__main__":
    sys.exit(main())
