"""Requests about options of running servers: their names on the wire."""

from __future__ import annotations

import pytest

from orbitmq.protocol.headers import Header
from orbitmq.protocol.requests.configuration import (
    BrokerConfigReply,
    GetBrokerConfig,
    GetNameServerConfig,
    UpdateBrokerConfig,
    UpdateNameServerConfig,
)


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (UpdateBrokerConfig(), 25),
        (GetBrokerConfig(), 26),
        (UpdateNameServerConfig(), 318),
        (GetNameServerConfig(), 319),
    ],
)
def test_a_request_has_its_code_and_no_fields(header: Header, code: int) -> None:
    assert code == header.CODE
    assert header.encode() == {}
    assert type(header).decode({}) == header


def test_the_version_of_a_brokers_options_may_be_missing() -> None:
    assert BrokerConfigReply(data_version='{"counter":1}').encode() == {"version": '{"counter":1}'}
    assert BrokerConfigReply.decode({}) == BrokerConfigReply(data_version=None)
