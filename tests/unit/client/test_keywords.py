"""Options as keyword arguments: known to type checkers, checked at run time."""

from __future__ import annotations

import typing

import pytest

from orbitmq.client import keywords, options
from orbitmq.client.keywords import options_of
from orbitmq.client.options import (
    ClientOptions,
    LitePullOptions,
    ProducerOptions,
    PullOptions,
)
from orbitmq.errors import OptionValueError, SettingsError, UnknownOptionError
from orbitmq.settings import describe

KINDS = ["Client", "Producer", "Consumer", "Member", "Push", "LitePull", "Pull"]


@pytest.mark.parametrize("kind", KINDS)
def test_keywords_and_options_have_the_same_names_and_types(kind: str) -> None:
    typed = typing.get_type_hints(getattr(keywords, f"{kind}Keywords"))
    declared = typing.get_type_hints(getattr(options, f"{kind}Options"))

    assert list(typed) == [row.field for row in describe(getattr(options, f"{kind}Options"))]
    assert typed == declared


def test_keywords_become_options() -> None:
    made = options_of(ProducerOptions, {"namesrv": "h:1", "tls": True}, environment={})

    assert (made.namesrv, made.tls, made.instance_name) == ("h:1", True, "DEFAULT")


def test_the_error_for_a_list_of_name_servers_shows_the_text_form() -> None:
    with pytest.raises(OptionValueError, match=r"namesrv cannot be 'a list' \(.*as 'h:1;i:2'"):
        options_of(ClientOptions, {"namesrv": ["h:1", "i:2"]}, environment={})


def test_an_unknown_keyword_names_the_nearest_one() -> None:
    with pytest.raises(UnknownOptionError, match=r"'namesvr'.*did you mean namesrv"):
        options_of(ClientOptions, {"namesvr": "h:1"}, environment={})


def test_the_name_of_an_option_in_java_leads_to_ours() -> None:
    with pytest.raises(UnknownOptionError, match=r"did you mean retries\?"):
        options_of(ProducerOptions, {"retryTimesWhenSendFailed": 3}, environment={})


@pytest.mark.parametrize(
    ("keyword", "value"),
    [("tls", "yes"), ("call_timeout_ms", 0), ("call_timeout_ms", 1.5), ("namesrv", ["h:1"])],
)
def test_a_wrong_value_names_the_keyword_and_what_it_takes(keyword: str, value: object) -> None:
    with pytest.raises(OptionValueError, match=f"{keyword} cannot be .*it takes"):
        options_of(ClientOptions, {keyword: value}, environment={})


def test_missing_options_come_from_the_environment() -> None:
    environment = {
        "NAMESRV_ADDR": "weak:1",
        "ORBITMQ_NAMESRV_ADDR": "strong:1",
        "ORBITMQ_ROCKETMQ_NAMESRV_DOMAIN": "addresses.example",
        "ORBITMQ_CALL_TIMEOUT_MS": "",
        "ORBITMQ_MQ_CLIENT_API_TIMEOUT": "77",
    }

    made = options_of(ClientOptions, {}, environment=environment)
    assert made.namesrv == "strong:1"
    assert made.namesrv_domain == "addresses.example"
    assert made.call_timeout_ms == 77
    given = options_of(ClientOptions, {"namesrv": "given:1"}, environment=environment)
    assert given.namesrv == "given:1"


def test_a_wrong_value_in_the_environment_names_the_variable() -> None:
    with pytest.raises(OptionValueError, match="environment ORBITMQ_MQ_CLIENT_API_TIMEOUT"):
        options_of(ClientOptions, {}, environment={"ORBITMQ_MQ_CLIENT_API_TIMEOUT": "soon"})


def test_the_error_for_an_invalid_address_shows_the_format() -> None:
    with pytest.raises(SettingsError, match=r"'localhost' is not an address.*host:port"):
        options_of(ClientOptions, {"namesrv": "localhost"}, environment={})


def test_one_key_without_the_other_is_refused() -> None:
    with pytest.raises(SettingsError, match="access_key is set and secret_key is not"):
        options_of(ClientOptions, {"access_key": "ak"}, environment={})
    with pytest.raises(SettingsError, match="secret_key is set and access_key is not"):
        options_of(ClientOptions, {"secret_key": "sk"}, environment={})


@pytest.mark.parametrize("kind", [LitePullOptions, PullOptions])
def test_a_client_must_wait_longer_than_the_broker_holds_a_pull(
    kind: type[LitePullOptions | PullOptions],
) -> None:
    with pytest.raises(SettingsError, match="held_pull_timeout_ms 20000 does not exceed hold_ms"):
        options_of(kind, {"held_pull_timeout_ms": 20_000}, environment={})


def test_pull_consumers_check_the_options_of_every_client_too() -> None:
    with pytest.raises(SettingsError, match="access_key is set and secret_key is not"):
        options_of(LitePullOptions, {"access_key": "me"}, environment={})
