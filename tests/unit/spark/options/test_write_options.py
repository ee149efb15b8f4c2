"""Write options."""

from __future__ import annotations

import dataclasses

import pytest

from orbitmq.client import Producer
from orbitmq.errors import NameRuleError, SettingsError
from orbitmq.spark.options.write_options import WriteOptions

NAMESRV = {"namesrvaddr": "127.0.0.1:9876"}
EXACTLY_ONCE = {**NAMESRV, "delivery": "exactlyOnce"}


def test_the_name_server_is_enough() -> None:
    options = WriteOptions.from_spark(NAMESRV)

    assert options.namesrv == "127.0.0.1:9876"
    assert options.delivery == "atLeastOnce"


def test_a_producer_can_be_made_of_all_of_them() -> None:
    options = WriteOptions.from_spark(
        {
            **NAMESRV,
            "topic": "orders",
            "compression": "zstd",
            "compressabovebytes": "100",
            "createtopics": "false",
            "sendtimeoutms": "5000",
            "retries": "3",
        }
    )

    keywords = options.producer_keywords()

    Producer(options.group, **keywords)
    assert keywords["compress_kind"] == "zstd"
    assert keywords["compress_above_bytes"] == 100
    assert keywords["template_queues"] == 0
    assert keywords["send_timeout_ms"] == 5000
    assert keywords["async_retries"] == 3


def test_rows_may_be_written_once() -> None:
    options = WriteOptions.from_spark(
        {**NAMESRV, "delivery": "exactlyOnce", "writeid": "load-1", "committimeoutms": "5000"}
    )

    assert options.is_exactly_once
    assert (options.write_id, options.commit_timeout_ms) == ("load-1", 5000)


def test_nothing_is_compressed_unless_asked_for() -> None:
    keywords = WriteOptions.from_spark(NAMESRV).producer_keywords()

    assert keywords["compress_above_bytes"] == 2**31 - 1


def test_a_body_may_be_smaller_than_a_batch() -> None:
    options = dataclasses.replace(WriteOptions.from_spark(NAMESRV), max_message_bytes=100)

    assert options.producer_keywords()["max_message_bytes"] == options.batch_bytes


def test_read_options_are_ignored() -> None:
    options = WriteOptions.from_spark(
        {**NAMESRV, "subscribe": "orders", "startingoffsets": "earliest", "topic": "orders"}
    )

    assert options.topic == "orders"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "namesrvAddr is missing"),
        (
            {**NAMESRV, "delivery": "exactlyOnce", "compression": "zstd"},
            "compression=zstd is not available with delivery=exactlyOnce",
        ),
        ({**NAMESRV, "writeId": "load-1"}, "writeId is for delivery=exactlyOnce"),
        ({**EXACTLY_ONCE, "writeId": "x" * 250}, "250 characters long .*use up to 249"),
        ({**EXACTLY_ONCE, "writeId": "load\n1"}, "writeId cannot be 'load.*printable"),
        ({**NAMESRV, "delivery": "twice"}, "delivery cannot be 'twice'"),
        ({**NAMESRV, "topics": "orders"}, "unknown option 'topics' .*did you mean topic"),
        ({**NAMESRV, "autoCreate": "no"}, "unknown option 'autoCreate' .*createTopics"),
        ({**NAMESRV, "topic": "a b"}, "topic name 'a b' contains ' '"),
        ({**NAMESRV, "group": "a b"}, "group name 'a b' contains ' '"),
        ({**NAMESRV, "batchBytes": "0"}, "batchBytes"),
        ({**NAMESRV, "kafka.retries": "3"}, "did you mean retries"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises((SettingsError, NameRuleError), match=reason):
        WriteOptions.from_spark(given)
