"""Ports: three neighbours that are free."""

from __future__ import annotations

import random

import pytest

from orbitmq.broker import ports
from orbitmq.errors import SettingsError
from orbitmq.transport.local_machine import is_free


def test_a_port_is_found_whose_neighbours_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    # The system's answers are recorded, not asked for again: others may take ports meanwhile.
    said: dict[int, bool] = {}

    def noting(address: str, port: int) -> bool:
        said[port] = is_free(address, port)
        return said[port]

    monkeypatch.setattr(ports, "is_free", noting)
    port = ports.find_port("127.0.0.1")

    assert all(said[port + step] for step in (ports.FAST_LANE, 0, ports.REPLICATION))


def test_a_machine_without_free_ports_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda _address, port: port % 2 != 0)

    with pytest.raises(SettingsError, match=r"set listenPort"):
        ports.find_port("127.0.0.1")


def test_programs_with_the_same_seed_do_not_try_the_same_ports() -> None:
    found = []
    for _ in range(3):
        random.seed(1)
        found.append([ports.find_port("127.0.0.1") for _ in range(3)])

    assert found[0] != found[1] != found[2]


def test_found_ports_are_below_those_of_outgoing_connections() -> None:
    found = {ports.find_port("127.0.0.1") for _ in range(20)}

    assert all(1024 <= port < 32768 for port in found)


@pytest.mark.parametrize("port", [1, 2, 65535])
def test_a_port_without_room_for_its_neighbours_is_refused(port: int) -> None:
    ports.check_port(3)
    ports.check_port(65534)

    with pytest.raises(SettingsError, match="use 3 to 65534"):
        ports.check_port(port)
