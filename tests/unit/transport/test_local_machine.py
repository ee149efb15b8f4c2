"""This machine: name, addresses, ports."""

from __future__ import annotations

import errno
import socket

import pytest

from orbitmq.errors import SettingsError
from orbitmq.transport.local_machine import (
    address_of,
    free_port,
    host_name,
    is_free,
    local_address,
    reserved_ports,
)

# Another process may bind a port while it is free.
TRIES = 10


def test_the_machine_has_a_name_and_an_address() -> None:
    assert host_name() == socket.gethostname()
    socket.inet_aton(local_address())


@pytest.mark.parametrize(
    ("host", "address"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "::1")]
)
def test_a_host_has_an_address_ipv4_first(host: str, address: str) -> None:
    assert address_of(host) == address


def test_a_name_without_an_address_is_an_error() -> None:
    with pytest.raises(SettingsError, match=r"no-such-host\.invalid.*has no address.*brokerIP1"):
        address_of("no-such-host.invalid")


def test_a_port_in_use_is_not_free() -> None:
    found: list[bool] = []

    for _ in range(TRIES):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]

            assert not is_free("127.0.0.1", port)
        found.append(is_free("127.0.0.1", port))

    assert any(found)


def test_a_reserved_port_is_not_free_and_nobody_answers_there() -> None:
    kept: list[bool] = []

    for _ in range(TRIES):
        port = free_port("127.0.0.1")
        with reserved_ports("127.0.0.1", port), socket.socket() as caller:
            nobody_answers = caller.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED
            kept.append(nobody_answers and not is_free("127.0.0.1", port))

    assert any(kept)


def test_reserving_a_port_in_use_does_not_fail() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, reserved_ports(*taken.getsockname()):
        socket.create_connection(taken.getsockname()).close()


def test_a_free_port_is_found_where_there_is_such_an_address() -> None:
    assert any(is_free("127.0.0.1", free_port("127.0.0.1")) for _ in range(TRIES))
    with pytest.raises(SettingsError, match=r"cannot listen on 192\.0\.2\.77"):
        free_port("192.0.2.77")
