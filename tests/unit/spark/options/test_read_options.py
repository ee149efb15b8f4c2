"""Read options: which go together, and which do not."""

from __future__ import annotations

import pytest

from orbitmq.client.core.subscriptions import SqlExpression
from orbitmq.errors import FilterSyntaxError, NameRuleError, OptionValueError, SettingsError
from orbitmq.spark.options.read_options import ReadOptions

OFFSETS = '{"t": {"a": {"0": 5}}}'


def options(
    given: dict[str, str] | None = None, *, streaming: bool | None = False, **more: str
) -> ReadOptions:
    given = {**(given or {}), **more}
    topics = {} if {"subscribePattern", "assign"} & set(given) else {"subscribe": "t"}
    return ReadOptions.from_spark({"namesrvaddr": "h:1", **topics, **given}, streaming=streaming)


def test_the_defaults_are_those_of_the_documentation() -> None:
    made = options()

    assert made.topics == ("t",)
    assert (made.properties, made.include_body, made.fail_on_data_loss) == ("string", True, True)
    assert made.starting_offsets == ""
    assert made.expression == "*"
    assert made.reading_group == "TOOLS_CONSUMER"
    assert made.max_trigger_delay_ms == 15 * 60_000


def test_a_stream_starts_at_the_end_by_default() -> None:
    assert options(streaming=True).starting_offsets == "latest"
    assert options(streaming=True, startingOffsets="earliest").starting_offsets == "earliest"
    assert options(streaming=True, startingTimestamp="5").starting_offsets == ""


def test_topics_must_be_given() -> None:
    with pytest.raises(SettingsError, match="give one of subscribe, subscribePattern and assign"):
        options(subscribe="")


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "earliest", "startingTimestamp": "5"},
        {"startingOffsets": OFFSETS, "startingOffsetsByTimestamp": OFFSETS},
        {"endingOffsets": "latest", "endingTimestamp": "0"},
    ],
)
def test_two_ways_to_set_a_start_or_an_end_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=f"{' and '.join(given)} are given together"):
        options(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"startingOffsets": "oldest"},
            "startingOffsets cannot be 'oldest'.*use earliest or latest, or an offset",
        ),
        ({"sql": "price >"}, "cannot parse sql: filter 'price >', column 8: expected"),
        ({"startingOffsets": "latest"}, "cannot be latest in a batch"),
        ({"startingOffsets": '{"t": {"a": {"0": -1}}}'}, "cannot be latest in a batch"),
        ({"startingOffsets": '{"t": {"a": {"0": -3}}}'}, "-3 is not a whole number of -2 or more"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"t": {"a": {"0": -2}}}'}, "-2 is not a whole number of -1 or more"),
        ({"startingOffsetsByTimestamp": "yesterday"}, "cannot parse startingOffsetsByTimestamp"),
        ({"endingOffsetsByTimestamp": "{"}, "cannot parse endingOffsetsByTimestamp"),
        ({"maxTriggerDelay": "long"}, "maxTriggerDelay cannot be 'long'"),
        ({"tags": "a", "sql": "b > 1"}, "both tags and sql"),
    ],
)
def test_an_impossible_value_is_refused_at_once(given: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        options(given)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(SettingsError, match=r"endingOffsets is for batches.*availableNow"):
        options(streaming=True, endingOffsets="latest")


def test_checks_that_depend_on_the_mode_wait_until_it_is_known() -> None:
    assert options(streaming=None, startingOffsets="latest").starting_offsets == "latest"
    assert options(streaming=None).starting_offsets == ""
    assert options(streaming=None, endingOffsets="latest").ending_offsets == "latest"


def test_a_stream_may_begin_at_the_end_of_some_queues() -> None:
    text = '{"t": {"a": {"0": -1}}}'

    assert options(streaming=True, startingOffsets=text).starting_offsets == text


def test_a_filter_is_by_tags_or_by_sql() -> None:
    assert options(tags="a || b").expression == "a || b"
    assert options(sql="x > 3").expression == SqlExpression("x > 3")
    with pytest.raises(FilterSyntaxError, match="expected tags"):
        options(tags="||")


def test_the_name_of_a_group_is_checked() -> None:
    assert options(group="auditors").group == "auditors"
    for name in ("group", "readingGroup"):
        with pytest.raises(NameRuleError):
            options({name: "a.b"})


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(OptionValueError, match="minPartitions cannot be '0'"):
        options(minPartitions="0")
