"""Addresses as text."""

from __future__ import annotations

import pytest

from orbitmq.errors import SettingsError
from orbitmq.transport.addresses import format_address, parse_address, parse_addresses


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:9876", ("127.0.0.1", 9876)),
        (" broker-a.example:1 ", ("broker-a.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[fe80::1%eth0]:9876", ("fe80::1%eth0", 9876)),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "host",
        "host:",
        ":9876",
        "[]:9876",
        "[::1]",
        "::1:9876",
        "fe80::1",
        "host:port",
        "host:-1",
        "host:0",
        "host:65536",
        "host:9 876",
        "host:\u0661\u0662",
        "host:" + "9" * 5000,
    ],
)
def test_an_invalid_address_is_refused_with_advice(text: str) -> None:
    with pytest.raises(SettingsError, match="is not an address") as caught:
        parse_address(text)

    assert "host:port" in caught.value.hint


def test_a_list_of_addresses_is_separated_by_semicolons() -> None:
    assert parse_addresses("a:1; b:2;;http://c:3;") == ["a:1", "b:2", "c:3"]
    assert parse_addresses("") == []
    with pytest.raises(SettingsError):
        parse_addresses("a:1;b")


def test_a_peer_is_written_as_an_address() -> None:
    assert format_address(("10.0.0.1", 80)) == "10.0.0.1:80"
    assert format_address(("::1", 80, 0, 0)) == "[::1]:80"
    assert format_address(None) == "unknown peer"
    assert format_address("/tmp/socket") == "/tmp/socket"


def test_addresses_separated_by_commas_are_refused_with_advice() -> None:
    with pytest.raises(SettingsError, match="semicolons"):
        parse_addresses("a:9876,b:9876")
