"""Hosts as bytes."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.record.hosts import decode_host, encode_host


def test_an_ipv4_host_takes_8_bytes() -> None:
    assert encode_host("192.168.1.10", 10911) == bytes.fromhex("c0a8010a00002a9f")


def test_an_ipv6_host_takes_20_bytes() -> None:
    encoded = encode_host("2001:db8::7", 10911)

    assert encoded == bytes.fromhex("20010db800000000000000000000000700002a9f")
    assert encode_host("2001:db8::7%eth0", 10911) == encoded


@given(st.ip_addresses(), st.integers(0, 65535))
def test_hosts_survive_a_round_trip(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
) -> None:
    assert decode_host(encode_host(str(address), port)) == (str(address), port)


@pytest.mark.parametrize("size", [0, 4, 7, 9, 16, 19, 21])
def test_other_lengths_are_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"a host has 8 or 20 bytes, not {size}"):
        decode_host(bytes(size))


def test_a_host_name_is_refused() -> None:
    with pytest.raises(ValueError, match="localhost"):
        encode_host("localhost", 1)
