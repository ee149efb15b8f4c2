"""Producers and staged writers kept from task to task."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from orbitmq.client import Message
from orbitmq.embedded import Cluster
from orbitmq.errors import StateError
from orbitmq.spark.options.write_options import WriteOptions
from orbitmq.spark.writing import writers
from orbitmq.spark.writing.writers import pooled_producer, pooled_staged_writer


@pytest.fixture(autouse=True)
def _stop() -> Iterator[None]:
    yield
    writers.stop_clients()


@pytest.fixture
def options() -> Iterator[WriteOptions]:
    with Cluster(in_memory=True) as cluster:
        cluster.create_topic("orders", queues=2)
        yield WriteOptions(namesrv=cluster.namesrv)


def test_equal_options_share_a_producer(options: WriteOptions) -> None:
    with (
        pooled_producer(options) as first,
        pooled_producer(dataclasses.replace(options, topic="orders")) as same,
        pooled_producer(dataclasses.replace(options, retries=1)) as other,
    ):
        assert same is first
        assert other is not first
        assert len(first.queues("orders")) == 2


def test_staged_writers_of_one_cluster_are_shared(options: WriteOptions) -> None:
    with (
        pooled_staged_writer(options) as first,
        pooled_staged_writer(dataclasses.replace(options, retries=1)) as same,
        pooled_staged_writer(dataclasses.replace(options, namespace="tenant")) as other,
    ):
        assert same is first
        assert other is not first


def test_both_can_be_stopped(options: WriteOptions) -> None:
    with pooled_producer(options) as producer, pooled_staged_writer(options) as writer:
        pass

    writers.stop_clients()

    with pytest.raises(StateError, match="stopped"):
        producer.send(Message("orders", b"body"))
    with pooled_producer(options) as next_producer, pooled_staged_writer(options) as next_writer:
        assert next_producer is not producer
        assert next_writer is not writer
