"""What Spark reads from and writes to in benchmarks: our topics, Kafka's, our files, Parquet."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from benchmarks.brokers import BrokerUnderLoad
from benchmarks.kafka_broker import QUEUES, KafkaBroker

KAFKA: Final = "Kafka"
PARQUET: Final = "Parquet"


class Side(Protocol):
    """One place that rows lie in."""

    @property
    def name(self) -> str:
        """How tables call it."""

    @property
    def pids(self) -> list[int]:
        """The processes that serve it, whose CPU time counts."""

    def prepare(self, topic: str) -> None:
        """Make a topic that is empty."""

    def read(self, spark: SparkSession, topic: str) -> DataFrame:
        """All rows of a topic."""

    def stream(self, spark: SparkSession, topic: str, per_trigger: int) -> DataFrame | None:
        """All rows of a topic, this many per micro-batch; None if unsupported."""

    @property
    def is_written(self) -> bool:
        """Whether rows can be written to it."""

    @property
    def is_streamed(self) -> bool:
        """Whether it can be read as a stream."""

    def write(self, frame: DataFrame, topic: str) -> None:
        """Append rows (`key`, `body`) to a topic."""


@dataclass(frozen=True, slots=True)
class OurTopics:
    """A broker of ours, through `format("rocketmq")`."""

    broker: BrokerUnderLoad

    @property
    def name(self) -> str:
        """Its way to flush tells brokers of ours apart."""
        return f"OrbitMQ, {self.broker.flush}"

    @property
    def pids(self) -> list[int]:
        """The broker."""
        return [self.broker.pid]

    @property
    def _namesrv(self) -> str:
        return self.broker.broker.name_servers[0]

    def prepare(self, topic: str) -> None:
        """Make it with as many queues as Kafka's has partitions."""
        self.broker.broker.create_topic(self._on_broker(topic), queues=QUEUES)

    def read(self, spark: SparkSession, topic: str) -> DataFrame:
        """With the columns that come unless others are asked for."""
        return (
            spark.read.format("rocketmq")
            .option("namesrvAddr", self._namesrv)
            .option("subscribe", self._on_broker(topic))
            .load()
        )

    def stream(self, spark: SparkSession, topic: str, per_trigger: int) -> DataFrame | None:
        """The same as a stream."""
        return (
            spark.readStream.format("rocketmq")
            .option("namesrvAddr", self._namesrv)
            .option("subscribe", self._on_broker(topic))
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", per_trigger)
            .load()
        )

    @property
    def is_streamed(self) -> bool:
        """It can."""
        return True

    @property
    def is_written(self) -> bool:
        """By Spark."""
        return True

    def write(self, frame: DataFrame, topic: str) -> None:
        """With keys and bodies; acknowledged once as safe as the broker makes it."""
        (
            frame.selectExpr("key AS keys", "body")
            .write.format("rocketmq")
            .option("namesrvAddr", self._namesrv)
            .option("topic", self._on_broker(topic))
            .mode("append")
            .save()
        )

    def _on_broker(self, topic: str) -> str:
        # Brokers of one name server: each has topics of its own.
        return f"{topic}_{self.broker.flush}"


@dataclass(frozen=True, slots=True)
class OurFiles:
    """The store of a broker of ours, through `format("rocketmq-store")`."""

    topics: OurTopics
    folder: Path

    @property
    def name(self) -> str:
        """Nobody is asked but the files."""
        return "OrbitMQ, store scan"

    @property
    def pids(self) -> list[int]:
        """No server takes part."""
        return []

    def prepare(self, topic: str) -> None:
        """The broker's topics exist already."""

    def read(self, spark: SparkSession, topic: str) -> DataFrame:
        """With the columns that come unless others are asked for."""
        return (
            spark.read.format("rocketmq-store")
            .option("subscribe", self.topics._on_broker(topic))
            .load(str(self.folder))
        )

    def stream(self, *_: object) -> DataFrame | None:
        """It has no streams."""
        return None

    @property
    def is_streamed(self) -> bool:
        """It cannot."""
        return False

    @property
    def is_written(self) -> bool:
        """Brokers do that."""
        return False

    def write(self, *_: object) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class KafkaTopics:
    """An official Kafka, through Spark's own connector, with its own defaults: acks=all."""

    broker: KafkaBroker

    @property
    def name(self) -> str:
        """The one that others are compared with."""
        return KAFKA

    @property
    def pids(self) -> list[int]:
        """The broker."""
        return [self.broker.process.popen.pid]

    def prepare(self, topic: str) -> None:
        """Make it: those that Kafka makes at a first write may time out on a busy machine."""
        classes = SparkSession.active().sparkContext._jvm
        assert classes is not None
        settings = classes.java.util.HashMap({"bootstrap.servers": self.broker.address})
        clients = classes.org.apache.kafka.clients.admin
        admin = clients.Admin.create(settings)
        try:
            made = [clients.NewTopic(topic, QUEUES, 1)]
            admin.createTopics(made).all().get()
        finally:
            admin.close()

    def read(self, spark: SparkSession, topic: str) -> DataFrame:
        """With its own columns."""
        return (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.address)
            .option("subscribe", topic)
            .load()
        )

    def stream(self, spark: SparkSession, topic: str, per_trigger: int) -> DataFrame | None:
        """The same as a stream."""
        return (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.address)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", per_trigger)
            .load()
        )

    @property
    def is_streamed(self) -> bool:
        """It can."""
        return True

    @property
    def is_written(self) -> bool:
        """By Spark."""
        return True

    def write(self, frame: DataFrame, topic: str) -> None:
        """With keys and values."""
        (
            frame.selectExpr("key", "body AS value")
            .write.format("kafka")
            .option("kafka.bootstrap.servers", self.broker.address)
            .option("topic", topic)
            .save()
        )


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """What Spark itself does best, as the limit."""

    folder: Path

    @property
    def name(self) -> str:
        """How tables call it."""
        return PARQUET

    @property
    def pids(self) -> list[int]:
        """No server takes part."""
        return []

    def prepare(self, topic: str) -> None:
        """Start over."""
        shutil.rmtree(self.folder / topic, ignore_errors=True)

    def read(self, spark: SparkSession, topic: str) -> DataFrame:
        """The two columns that were written."""
        return spark.read.parquet(str(self.folder / topic))

    def stream(self, *_: object) -> DataFrame | None:
        """Files are no queue."""
        return None

    @property
    def is_streamed(self) -> bool:
        """It cannot."""
        return False

    @property
    def is_written(self) -> bool:
        """By Spark."""
        return True

    def write(self, frame: DataFrame, topic: str) -> None:
        """Not compressed, as messages are not."""
        frame.write.option("compression", "none").mode("append").parquet(str(self.folder / topic))
