"""The table of RocketMQ's option names."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from orbitmq.settings.rocketmq_options import (
    REFUSED,
    ROCKETMQ_OPTIONS,
    WITHOUT_EFFECT,
    Reader,
    RocketMQOption,
    ServerRole,
)


def test_every_name_has_one_row() -> None:
    names = Counter(row.name for row in (*REFUSED, *WITHOUT_EFFECT))

    assert [name for name, count in names.items() if count > 1] == []
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9]+", name) for name in names)
    assert all(row.readers for row in ROCKETMQ_OPTIONS.values())


@pytest.mark.parametrize(
    ("name", "reader", "default"),
    [
        ("scanNotActiveBrokerInterval", Reader.NAME_SERVER, "5000"),
        ("serverWorkerThreads", Reader.SERVER, "8"),
        ("clientAsyncSemaphoreValue", Reader.CLIENT, "65535"),
        ("brokerName", Reader.BROKER, "host-name"),
        ("mappedFileSizeCommitLog", Reader.STORE, "1073741824"),
        ("dLegerGroup", Reader.STORE, ""),
        ("controllerDLegerPeers", Reader.CONTROLLER, ""),
        ("filterServerNums", Reader.BROKER, "0"),
    ],
)
def test_options_of_all_classes_are_known_with_their_defaults(
    name: str, reader: Reader, default: str
) -> None:
    row = ROCKETMQ_OPTIONS[name]

    assert reader in row.readers
    assert row.default == default


@pytest.mark.parametrize(
    "name",
    [
        "aclEnable",
        "authenticationEnabled",
        "authorizationEnabled",
        "enableControllerMode",
        "enableDLegerCommitLog",
        "storeType",
        "enableControllerInNamesrv",
    ],
)
def test_options_that_cannot_be_honoured_are_refused(name: str) -> None:
    row = ROCKETMQ_OPTIONS[name]

    assert row.harmless == row.default
    assert row.reason


def test_an_option_without_effect_says_why() -> None:
    why = ROCKETMQ_OPTIONS["serverSelectorThreads"].why_without_effect(ServerRole.NAME_SERVER)

    assert why == "has no effect: work runs on an event loop, not in thread pools"


def test_an_option_of_another_role_says_whose_it_is() -> None:
    row = ROCKETMQ_OPTIONS["brokerName"]

    assert row.why_without_effect(ServerRole.NAME_SERVER) == (
        "is a broker option and has no effect on the name server"
    )
    assert row.why_without_effect(ServerRole.BROKER) == "has no effect: nothing here depends on it"
    assert row.why_without_effect(None) == "has no effect: nothing here depends on it"


def test_an_option_of_two_roles_names_both() -> None:
    row = RocketMQOption(name="x", default="", readers=(Reader.BROKER, Reader.CONTROLLER))

    assert "is a broker and controller option" in row.why_without_effect(ServerRole.NAME_SERVER)
