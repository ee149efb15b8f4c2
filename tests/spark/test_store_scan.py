"""Store directories as Spark tables, on a real Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from benchmarks import spark_store_scan
from orbitmq.client import Message, Producer
from orbitmq.record.layout import COMPRESSED
from orbitmq.store.files.file_names import file_name
from orbitmq.store.index.consume_queue import ENTRY
from orbitmq.store.readonly.readonly_store import ReadOnlyStore
from tests.interop import building
from tests.interop.official import OfficialBroker, OfficialNameServer
from tests.interop.store_chain import FLUSH_OFTEN
from tests.interop.stores import SMALL_FILES
from tests.interop.suite import BUILD_FAILURE
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.spark.conftest import StartCluster
from tests.spark.topics import PATIENCE_MS
from tests.unit.store.stores import message, open_store
from tests.unit.store.written_stores import (
    LOG_FILE_BYTES,
    T0,
    WriterProcess,
    as_rocketmq,
    change,
    fill,
)
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 2_000


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a broker that was stopped: topics 0 and 1 with two queues each, three tags."""
    root = tmp_path_factory.mktemp("stopped") / "broker-a" / "store"
    fill(root, COUNT)
    return root


def scan(spark: SparkSession, *roots: Path, **options: str) -> DataFrame:
    reader = spark.read.format("rocketmq-store").options(**options)
    return reader.load([str(root) for root in roots] if len(roots) > 1 else str(roots[0]))


def numbers(frame: DataFrame) -> list[int]:
    """The numbers of the messages, sorted."""
    return sorted(int(row.msgId[2:]) for row in frame.select("msgId").collect())


def numbers_where(holds: Callable[[int], bool]) -> list[int]:
    return [number for number in range(COUNT) if holds(number)]


def test_a_stopped_brokers_messages_are_rows(spark: SparkSession, stopped: Path) -> None:
    frame = scan(spark, stopped, minPartitions="3", columns="all")

    rows = frame.collect()

    assert frame.rdd.getNumPartitions() == 3
    with ReadOnlyStore(stopped) as store:
        expected = {
            (message.topic, message.queue_id, message.queue_offset): message
            for topic, queue_id in store.queue_keys()
            for message in store.messages(topic, queue_id, 0, COUNT)
        }
    assert len(rows) == len(expected) == COUNT
    for row in rows:
        message = expected[row.topic, row.queueId, row.queueOffset]
        assert (row.brokerName, row.physicalOffset) == ("broker-a", message.physical_offset)
        assert (bytes(row.body), row.tags) == (message.body, message.properties["TAGS"])
        assert row.storeTimestamp.timestamp() * 1000 == pytest.approx(message.store_ms)


@pytest.mark.parametrize("where", ["OPTIONS (path '{root}')", "LOCATION '{root}'"])
def test_a_store_is_a_sql_table(spark: SparkSession, stopped: Path, where: str) -> None:
    spark.sql(f"CREATE TABLE kept USING `rocketmq-store` {where.format(root=stopped)}")
    try:
        (row,) = spark.sql(
            "SELECT count(*) AS messages, max(brokerName) AS name FROM kept"
        ).collect()
    finally:
        spark.sql("DROP TABLE kept")

    assert (row.messages, row.name) == (COUNT, "broker-a")


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        ({"subscribe": "topic1"}, lambda n: n % 2),
        ({"assign": '{"topic0": {"broker-a": [1]}}'}, lambda n: n % 4 == 2),
        (
            {"startingTimestamp": str(T0 + 5_000), "endingTimestamp": str(T0 + 9_001)},
            lambda n: 500 <= n <= 900,
        ),
        (
            {"tags": "tag0||tag2", "subscribePattern": "topic[0]"},
            lambda n: n % 3 != 1 and not n % 2,
        ),
    ],
    ids=["topic", "queue", "time", "tag"],
)
def test_options_select_the_same_as_a_filter_on_every_message(
    spark: SparkSession, stopped: Path, options: dict[str, str], holds: Callable[[int], bool]
) -> None:
    assert numbers(scan(spark, stopped, **options)) == numbers_where(holds)


CONDITIONS: dict[str, Callable[[int], bool]] = {
    "topic = 'topic1' AND queueId IN (1, 5)": lambda n: n % 4 == 3,
    "queueOffset >= 100 AND queueOffset < 130": lambda n: 100 <= n // 4 < 130,
    f"storeTimestamp >= timestamp_millis({T0 + 4_005}) AND tags = 'tag2'": lambda n: (
        n > 400 and n % 3 == 2
    ),
    "tags IN ('tag0', 'none') OR queueId = 0": lambda n: not n % 3 or n % 4 < 2,
    "brokerName = 'elsewhere'": lambda _: False,
}


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_conditions_choose_the_same_rows_pushed_down_or_not(
    spark: SparkSession, stopped: Path, pushed: str
) -> None:
    conf = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(conf, "false")
    assert before is not None
    spark.conf.set(conf, pushed)
    try:
        for condition, holds in CONDITIONS.items():
            found = numbers(scan(spark, stopped).where(condition))
            assert found == numbers_where(holds), condition
    finally:
        spark.conf.set(conf, before)


def test_no_row_is_beyond_the_watermark_and_none_below_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    with WriterProcess(tmp_path, queue_flush_interval_ms=10**6) as writer:
        # The ledger: messages confirmed before a scan, and after it.
        written = [0]
        for first in (0, 700, 1_400):
            writer.ask(first=first, count=700)
            # Appended and not flushed: some of these may be visible, none must be.
            writer.ask(first=10_000 + first, count=5, confirm=False)
            written.append(first + 700)
            found = numbers(scan(spark, tmp_path, minPartitions="2"))
            with ReadOnlyStore(tmp_path) as store:
                visible = sum(queue.end - queue.start for queue in store.queues())

            assert [number for number in found if number < 10_000] == list(range(written[-1]))
            assert len(found) <= visible
            assert len(set(found)) == len(found)


def test_planned_rows_are_read_while_the_broker_keeps_writing(
    spark: SparkSession, tmp_path: Path
) -> None:
    with WriterProcess(tmp_path, queue_flush_interval_ms=1) as writer:
        writer.ask(first=0, count=500)
        planned = scan(spark, tmp_path, minPartitions="2").rdd
        assert planned.getNumPartitions() == 2
        writer.ask(first=500, count=1_000)

        assert sorted(int(row.msgId[2:]) for row in planned.collect()) == list(range(500))


def test_several_brokers_stores_are_one_table(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path / "broker-a" / "store", 300)
    fill(tmp_path / "broker-b" / "store", 200, first=300)
    as_rocketmq(tmp_path / "broker-b" / "store")

    by_pattern = scan(spark, tmp_path / "*" / "store")
    by_list = scan(spark, tmp_path / "broker-a" / "store", tmp_path / "broker-b" / "store")

    counts = {
        row.brokerName: row["count"] for row in by_list.groupBy("brokerName").count().collect()
    }
    assert counts == {"broker-a": 300, "broker-b": 200}
    assert numbers(by_pattern) == list(range(500))


def test_a_schema_chooses_columns_and_sql_reads_the_same(
    spark: SparkSession, stopped: Path
) -> None:
    chosen = spark.read.format("rocketmq-store").schema("body binary, queueId int")
    assert chosen.load(str(stopped)).limit(1).columns == ["body", "queueId"]

    spark.sql(
        f'CREATE TEMPORARY VIEW kept USING `rocketmq-store` OPTIONS (path "{stopped}", '
        'subscribe "topic0", properties "map")'
    )
    (row,) = spark.sql("SELECT count(*) AS n, min(properties['TAGS']) AS tag FROM kept").collect()
    spark.catalog.dropTempView("kept")
    assert (row.n, row.tag) == (COUNT // 2, "tag0")


def test_an_empty_selection_is_an_empty_table(spark: SparkSession, stopped: Path) -> None:
    assert scan(spark, stopped, startingTimestamp=str(T0 * 2)).count() == 0


def test_deleted_messages_are_not_rows_and_missing_ones_are_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    fill(tmp_path, COUNT)
    (tmp_path / "commitlog" / file_name(0)).unlink()
    with ReadOnlyStore(tmp_path) as store:
        left = sum(queue.end - queue.start for queue in store.queues())
    assert scan(spark, tmp_path).count() == left < COUNT

    (tmp_path / "commitlog" / file_name(3 * LOG_FILE_BYTES)).unlink()
    with pytest.raises(PySparkException, match=r"messages \d+ to \d+ of queue 0 of topic 'topic0'"):
        scan(spark, tmp_path).count()
    assert 0 < scan(spark, tmp_path, failOnDataLoss="false").count() < left


def test_bad_checksums_fail_a_query_that_checks_them(spark: SparkSession, tmp_path: Path) -> None:
    fill(tmp_path, 100)
    log = tmp_path / "commitlog" / file_name(0)
    change(log, log.read_bytes().index(b"55:55:55:"), b"?")

    assert scan(spark, tmp_path).count() == 100
    with pytest.raises(PySparkException, match="checksum"):
        scan(spark, tmp_path, checkCRC="true").count()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "none"}, "is not a folder"),
        ({"path": "."}, r"is not a store: .*did you mean .*broker-a/store"),
        ({"path": "broker-a/store", "subscribe": "topic9"}, "did you mean topic"),
        ({"path": "broker-a/store", "checkCrcs": "true"}, "did you mean checkCRC"),
        ({"path": "hdfs://host/store"}, "is not in this machine"),
    ],
    ids=["nothing", "around", "topic", "option", "scheme"],
)
def test_errors_say_what_is_wrong(
    spark: SparkSession, stopped: Path, options: dict[str, str], message: str
) -> None:
    path = (
        options["path"] if "://" in options["path"] else str(stopped.parents[1] / options["path"])
    )
    reader = spark.read.format("rocketmq-store").options(**{**options, "path": path})

    with pytest.raises(PySparkException, match=message):
        reader.load().count()


def test_an_unreadable_message_fails_the_query_or_is_skipped_or_null(
    spark: SparkSession, tmp_path: Path
) -> None:
    with open_store(tmp_path) as store:
        store.put(message(b"fine"))
        store.put(message(b"no zip", system_flag=COMPRESSED))

    def rows(choice: str) -> list[tuple[int, bytes | None]]:
        frame = scan(spark, tmp_path, onUnreadable=choice, columns="queueOffset, body")
        return sorted((row.queueOffset, row.body) for row in frame.collect())

    with pytest.raises(PySparkException, match="record of topic 'orders' on broker") as failed:
        rows("fail")
    assert rows("skip") == [(0, b"fine")]
    assert rows("null") == [(0, b"fine"), (1, None)]
    assert "Traceback" not in str(failed.value)


def test_an_entry_that_leads_to_the_record_of_another_message_fails_the_query_or_is_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    fill(root, 100)
    queue, other = (root / f"consumequeue/topic{n}/0" / file_name(0) for n in (0, 1))
    entry = other.read_bytes()[5 * ENTRY.size : 6 * ENTRY.size]
    change(queue, 5 * ENTRY.size, entry)

    with pytest.raises(
        PySparkException, match=r"entry of topic 'topic0' .*leads to a record of topic"
    ):
        scan(spark, root, subscribe="topic0").collect()
    found = numbers(scan(spark, root, subscribe="topic0", onUnreadable="skip"))

    expected = numbers_where(lambda number: number < 100 and number % 2 == 0)
    assert sorted(set(expected) - set(found)) == [20]


# --- beside format("rocketmq"), and a store of RocketMQ's --------------------------------------


def test_rows_equal_those_from_brokers(
    spark: SparkSession, start_cluster: StartCluster, tmp_path: Path
) -> None:
    topics = start_cluster(brokers=2, directory=tmp_path)
    topic = topics.create(queues=2)
    topics.send_messages(
        Message(
            topic,
            f"message {number} ".encode() * (1 if number % 50 else 2_000),
            tags=f"tag{number % 3}" if number % 4 else "",
            keys=[f"key{number}"],
            properties={"number": str(number), "größe": "12 €"},
        )
        for number in range(400)
    )
    from_brokers = (
        spark.read.format("rocketmq")
        .option("namesrvAddr", topics.cluster.namesrv)
        .option("subscribe", topic)
        .option("columns", "all")
        .load()
    )
    from_files = scan(spark, tmp_path / "*", subscribe=topic, columns="all")

    order = ["brokerName", "queueId", "queueOffset"]
    assert from_files.schema == from_brokers.schema
    rows = from_files.orderBy(order).collect()
    assert len(rows) == 400
    assert rows == from_brokers.orderBy(order).collect()


@pytest.fixture(params=building.LINES)
def official_broker(
    request: pytest.FixtureRequest, tmp_path: Path, pytestconfig: pytest.Config
) -> Iterator[OfficialBroker]:
    """A RocketMQ broker with small files, and a name server of its own."""
    if BUILD_FAILURE in pytestconfig.stash:
        raise pytestconfig.stash[BUILD_FAILURE]
    server = OfficialNameServer(request.param, tmp_path / "name-server")
    settings = {**SMALL_FILES, **FLUSH_OFTEN}
    broker = OfficialBroker(
        request.param, "official", tmp_path / "broker", [server.address], settings
    )
    try:
        server.process.start()
        server.wait_ready()
        broker.process.start()
        broker.wait_ready()
        yield broker
    finally:
        broker.process.kill()
        server.process.kill()


@pytest.mark.interop
def test_a_store_of_rocketmq_is_a_table_while_it_is_written_and_afterwards(
    spark: SparkSession, official_broker: OfficialBroker, tmp_path: Path
) -> None:
    root = tmp_path / "broker" / "store"
    official_broker.create_topic("orders", queues=2)
    sent: dict[str, bytes] = {}

    def send(first: int, count: int) -> None:
        namesrv = official_broker.name_servers[0]
        with Producer("spark-tests", namesrv=namesrv, send_timeout_ms=PATIENCE_MS) as producer:
            for number in range(first, first + count):
                body = f"message {number} ".encode() * (1 if number % 40 else 600)
                receipt = producer.send(Message("orders", body, tags=f"tag{number % 3}"))
                sent[receipt.message_id] = body

    def visible() -> int:
        with ReadOnlyStore(root) as store:
            return sum(queue.end - queue.start for queue in store.queues("orders"))

    send(0, 200)
    # Readers learn from its checkpoint what is flushed, with a delay.
    wait_until(lambda: visible() > 0, timeout_s=CLIENT_TIMEOUT_S, what="a message is flushed")
    before = visible()
    live = scan(spark, root, brokerName="official", subscribe="orders").collect()
    after = visible()
    send(200, 100)
    official_broker.process.stop()
    stopped_rows = scan(spark, root, brokerName="official", subscribe="orders").collect()
    some = scan(spark, root, brokerName="official", subscribe="orders", tags="tag1").count()

    assert before <= len(live) <= after
    for row in live:
        assert bytes(row.body) == sent[row.msgId]
    assert {row.msgId: bytes(row.body) for row in stopped_rows} == sent
    assert len(stopped_rows) == len(sent)
    assert some == 100


@pytest.mark.campaign
def test_the_benchmark_measures_what_it_says(spark: SparkSession, tmp_path: Path) -> None:
    forms = spark_store_scan.forms_of(spark, tmp_path, 200, 128)

    measured = spark_store_scan.measure("small", forms, 200, warm_up=1, rounds=1, seed=1)

    assert {one.form for one in measured} == set(forms)
    assert all(one.cpu_us >= 0 and one.wall_us > 0 for one in measured)
