"""Producers kept from task to task."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator

import pytest

from orbitmq.client import Message
from orbitmq.embedded import Cluster
from orbitmq.errors import StateError
from orbitmq.spark import producers
from orbitmq.spark.producers import producer_for, staged_writer_for
from orbitmq.spark.write_options import WriteOptions


@pytest.fixture(autouse=True)
def _stop() -> Iterator[None]:
    yield
    producers.stop_all()


@pytest.fixture
def options() -> Iterator[WriteOptions]:
    with Cluster(in_memory=True) as cluster:
        cluster.create_topic("orders", queues=2)
        yield WriteOptions(namesrv=cluster.namesrv)


def test_equal_options_share_a_producer(options: WriteOptions) -> None:
    first = producer_for(options)

    assert producer_for(dataclasses.replace(options, topic="orders")) is first
    assert producer_for(dataclasses.replace(options, retries=1)) is not first
    assert len(first.queues("orders")) == 2


def test_so_do_staged_writers_of_one_cluster(options: WriteOptions) -> None:
    first = staged_writer_for(options)

    assert staged_writer_for(dataclasses.replace(options, retries=1)) is first
    assert staged_writer_for(dataclasses.replace(options, namespace="tenant")) is not first


def test_the_producer_used_longest_ago_makes_room(options: WriteOptions) -> None:
    first = producer_for(options)
    second = producer_for(dataclasses.replace(options, retries=1))
    for retries in range(2, 8):
        producer_for(dataclasses.replace(options, retries=retries))

    assert producer_for(options) is first
    producer_for(dataclasses.replace(options, retries=9))

    first.send(Message("orders", b"body"))
    with pytest.raises(StateError, match="stopped"):
        second.send(Message("orders", b"body"))


def test_a_child_process_starts_with_none(options: WriteOptions) -> None:
    producer_for(options)
    reading, writing = os.pipe()

    child = os.fork()
    if not child:
        os.write(writing, b"%d" % len(producers._process.by_options))
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)

    with os.fdopen(reading, "rb") as told:
        assert told.read() == b"0"
    assert len(producers._process.by_options) == 1


def test_what_is_stopped_is_made_anew(options: WriteOptions) -> None:
    first = producer_for(options)

    producers.stop_all()

    assert producer_for(options) is not first
