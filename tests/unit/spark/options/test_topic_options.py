"""Options shared by reading a cluster and scanning stores."""

from __future__ import annotations

import pickle  # noqa: TID251  # Spark pickles options
from typing import Protocol

import pytest

from orbitmq.errors import OrbitError
from orbitmq.model.queues import MessageQueue
from orbitmq.spark.options.column_names import COLUMN_NAMES, USUAL_COLUMNS
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.options.store_options import StoreOptions
from orbitmq.spark.options.topic_options import TopicOptions


class Made(Protocol):
    def __call__(self, **given: str) -> TopicOptions: ...


def of_a_cluster(**given: str) -> TopicOptions:
    return ReadOptions.from_spark({"namesrvAddr": "a:9876", **given})


def of_a_store(**given: str) -> TopicOptions:
    return StoreOptions.from_spark({"path": "/data/store", **given})


both = pytest.mark.parametrize("made", [of_a_cluster, of_a_store])


@both
def test_topics_are_named(made: Made) -> None:
    options = made(subscribe="orders, payments,")

    assert options.topics == ("orders", "payments")
    assert options.assigned_queues == ()


@both
def test_queues_are_assigned_by_broker(made: Made) -> None:
    options = made(assign='{"orders": {"broker-a": [1]}}')

    assert options.topics == ()
    assert options.assigned_queues == (
        MessageQueue(topic="orders", broker_name="broker-a", queue_id=1),
    )


@both
def test_columns_are_named_without_types(made: Made) -> None:
    assert made(subscribe="orders", columns=" Topic ,BODY").column_names == ("topic", "body")
    assert made(subscribe="orders").column_names == USUAL_COLUMNS
    assert made(subscribe="orders", columns="All").column_names == COLUMN_NAMES
    assert "body" not in made(subscribe="orders", columns="all", includeBody="false").column_names


@both
def test_the_form_of_properties_is_an_option(made: Made) -> None:
    assert made(subscribe="orders").properties_form == "string"
    assert made(subscribe="orders", properties="map").properties_form == "map"


@both
def test_options_can_be_pickled(made: Made) -> None:
    options = made(subscribe="orders", tags="A", minPartitions="7")

    assert pickle.loads(pickle.dumps(options)) == options


@both
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "a", "assign": "{}"}, "subscribe and assign are given together"),
        ({"subscribe": ","}, "subscribe names no topic"),
        ({"subscribe": "no topic"}, "contains ' '"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"subscribePattern": "a{99999999999}"}, "not a regular expression"),
        ({"subscribePattern": "(" * 5_000 + ")" * 5_000}, "not a regular expression"),
        ({"assign": "[]"}, "cannot parse assign"),
        ({"subscribe": "a", "tags": "||"}, "expected tags"),
        ({"subscribe": "a", "properties": "json"}, "properties cannot be 'json'"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions"),
        ({"subscribe": "a", "columns": "value"}, "did you mean body"),
        ({"subscribe": "a", "columns": "topic STRING"}, "did you mean topic"),
        ({"subscribe": "a", "columns": "topic,,body"}, "has an empty name"),
        ({"subscribe": "a", "columns": "topic,Topic"}, "'topic' more than once"),
        ({"subscribe": "a", "columns": "all,body"}, "'all', which messages do not have"),
        (
            {"subscribe": "a", "columns": "body", "includeBody": "false"},
            "names 'body', and includeBody=false drops it",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(made: Made, given: dict[str, str], message: str) -> None:
    with pytest.raises(OrbitError, match=message):
        made(**given)
