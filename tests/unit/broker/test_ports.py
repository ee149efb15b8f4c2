"""Ports: three neighbours that are free."""

from __future__ import annotations

import socket

import pytest

from orbitmq.broker import ports
from orbitmq.errors import SettingsError


def test_a_port_is_found_whose_neighbours_are_free() -> None:
    port = ports.find_port("127.0.0.1")

    for step in (ports.FAST_LANE, 0, ports.REPLICATION):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port + step))


def test_a_machine_without_free_ports_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _address, port: port % 2 != 0)

    with pytest.raises(SettingsError, match=r"set listenPort"):
        ports.find_port("127.0.0.1")


def test_no_port_is_found_that_outgoing_connections_get() -> None:
    found = {ports.find_port("127.0.0.1") for _ in range(20)}

    assert all(1024 <= port < 32768 for port in found)


@pytest.mark.parametrize("port", [1, 2, 65535])
def test_a_port_without_room_for_its_neighbours_is_refused(port: int) -> None:
    ports.check_port(3)
    ports.check_port(65534)

    with pytest.raises(SettingsError, match="3 to 65534 are possible"):
        ports.check_port(port)
