"""The table of options of the Spark formats."""

from __future__ import annotations

import pickle  # noqa: TID251  # Spark pickles options
from dataclasses import dataclass

import pytest

from orbitmq.errors import (
    OptionValueError,
    SettingsError,
    SettingsProblemsError,
    UnknownOptionError,
)
from orbitmq.settings import describe
from orbitmq.spark.options.spark_options import (
    ConnectionOptions,
    check_one_given,
    given_among,
    is_sparks_own,
    kafka_name,
    options_from,
    parse_duration_ms,
    spark_option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(ConnectionOptions):
    """Options of a sample."""

    max_rows: int | None = spark_option(
        None, low=1, kafka="maxOffsetsPerTrigger", others=("rowLimit",), doc="Rows."
    )
    mode: str = spark_option("plain", choices=("plain", "fancy"), doc="How.")
    eager: bool = spark_option(True, doc="Whether.")


def sample(**given: str) -> Sample:
    return options_from(Sample, {"namesrvaddr": "h:1", **given}, where="the sample")


def test_names_come_in_any_letter_case_and_values_as_texts() -> None:
    made = sample(maxrows="7", MODE="fancy", eager="False")

    assert (made.namesrv, made.max_rows, made.mode, made.eager) == ("h:1", 7, "fancy", False)


def test_what_is_not_given_has_its_default() -> None:
    assert sample().max_rows is None
    assert sample(maxrows="").max_rows is None


def test_options_of_other_classes_may_be_given() -> None:
    given = {"namesrvaddr": "h:1", "MODE": "fancy"}

    made = options_from(ConnectionOptions, given, where="the sample", beside=[Sample])

    assert made.namesrv == "h:1"
    with pytest.raises(UnknownOptionError):
        options_from(ConnectionOptions, given, where="the sample")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("maxrow", "maxRows"),
        ("max_rows", "maxRows"),
        ("maxOffsetsPerTrigger", "maxRows"),
        ("maxoffsetspertrigger", "maxRows"),
        ("rowLimit", "maxRows"),
        ("kafka.bootstrap.servers", "namesrvAddr"),
        ("bootstrap.servers", "namesrvAddr"),
        ("namesrv", "namesrvAddr"),
        ("rocketmq.namesrv.addr", "namesrvAddr"),
        ("tls.enable", "tls"),
        ("tls.client.keyPassword", "tlsKeyPassword"),
    ],
)
def test_an_unknown_option_names_the_nearest_one(name: str, nearest: str) -> None:
    with pytest.raises(UnknownOptionError, match=rf"the sample: .*did you mean {nearest}\?"):
        sample(**{name: "1"})


def test_an_option_without_a_near_match_leads_to_the_page() -> None:
    with pytest.raises(UnknownOptionError, match=r"docs/spark-options.md lists them all"):
        sample(zzz="1")


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("maxRows", "many", "a whole number, or nothing, 1 or more"),
        ("maxRows", "0", "1 or more"),
        ("mode", "odd", "one of plain, fancy"),
        ("eager", "yes", "true or false"),
    ],
)
def test_a_bad_value_says_what_is_allowed(name: str, value: str, allowed: str) -> None:
    with pytest.raises(OptionValueError, match=f"{name} cannot be '{value}'.*{allowed}"):
        sample(**{name: value})


def test_one_error_lists_all_problems() -> None:
    with pytest.raises(SettingsProblemsError, match=r"(?s)2 problems.*mode cannot be.*'zzz'"):
        sample(mode="odd", zzz="1")


def test_what_spark_sets_by_itself_passes() -> None:
    made = sample(path="x", checkpointLocation="y", queryname="z")

    assert made == sample()
    assert is_sparks_own("checkpointlocation")
    assert not is_sparks_own("maxRows")


def test_the_name_servers_must_be_given() -> None:
    with pytest.raises(SettingsError, match=r"namesrvAddr is missing.*127\.0\.0\.1:9876") as raised:
        options_from(Sample, {}, where="the sample")
    assert "leave the columns out of CREATE TABLE" in str(raised.value)


def test_the_checks_of_clients_are_made_at_once() -> None:
    with pytest.raises(SettingsError, match=r"access_key is set and secret_key is not"):
        sample(accesskey="me")


def test_secrets_are_not_shown_and_options_can_be_pickled() -> None:
    made = sample(accesskey="me", secretkey="hush")

    assert "hush" not in repr(made)
    assert pickle.loads(pickle.dumps(made)) == made  # as Spark does
    with pytest.raises(OptionValueError) as raised:
        sample(secretkey="hush", maxrows="many")
    assert "hush" not in str(raised.value)


def test_clients_get_the_given_options() -> None:
    keywords = sample(tls="true", namespace="space").client_keywords()

    assert keywords["namesrv"] == "h:1"
    assert keywords["tls"] is True
    assert keywords["namespace"] == "space"
    of_connection = {row.field for row in describe(ConnectionOptions)}
    # Clients get the content of the file of secrets, not its path.
    assert of_connection - {"secrets_path"} == set(keywords)


def test_rows_know_their_names_in_kafka() -> None:
    names = {row.name: kafka_name(Sample, row) for row in describe(Sample)}

    assert names["maxRows"] == "maxOffsetsPerTrigger"
    assert names["mode"] == ""


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("30 s", 30_000), ("15m", 900_000), ("1H", 3_600_000), ("7", 7)],
)
def test_durations_are_read_as_kafka_reads_them(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["m", "5 weeks", "-1s", "1.5s"])
def test_a_text_that_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse_duration_ms(text)


def test_options_that_exclude_each_other_are_refused() -> None:
    made = sample(maxRows="7", namespace="tenant")

    assert given_among(made, ["max_rows", "access_key"]) == ["maxRows"]
    check_one_given(made, ["max_rows", "access_key"], hint="choose")
    with pytest.raises(SettingsError, match=r"maxRows and namespace are given together \(choose"):
        check_one_given(made, ["max_rows", "namespace"], hint="choose")
