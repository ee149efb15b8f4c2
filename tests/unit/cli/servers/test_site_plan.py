"""What `orbitmq up` is about to run, and what is wrong with it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from orbitmq.cli.servers import site_plan
from orbitmq.cli.servers.site_plan import check_ports, near_host, plan_brokers, shown_host
from orbitmq.errors import SettingsError
from orbitmq.transport.local_machine import local_address

HOST = "127.0.0.1"
FOLDER = Path("/kept")


@pytest.fixture
def _all_ports_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs on the machine."""
    monkeypatch.setattr(site_plan, "is_free", lambda _host, _port: True)


def plan(
    count: int = 1, *, host: str = HOST, port: int = 0, metrics_port: int = 0, **options: str
) -> list[dict[str, str]]:
    return plan_brokers(
        count, folder=FOLDER, host=host, port=port, metrics_port=metrics_port, options=options
    )


def test_brokers_have_names_folders_and_ports_of_their_own() -> None:
    first, second = plan(2, port=20_911, metrics_port=25_557)

    assert (first["brokerName"], second["brokerName"]) == ("broker-a", "broker-b")
    assert (first["listenPort"], second["listenPort"]) == ("20911", "20921")
    assert second["metricsPromExporterPort"] == "25558"
    assert second["storePathRootDir"] == "/kept/broker-b"


@pytest.mark.usefixtures("_all_ports_are_free")
def test_port_0_finds_free_ones() -> None:
    both = plan(2)

    ports = {flags[name] for flags in both for name in ("listenPort", "metricsPromExporterPort")}
    assert len(ports) == 4
    assert "0" not in ports
    check_ports(HOST, 0, both)


def test_a_broker_everywhere_tells_an_address_that_clients_reach() -> None:
    (flags,) = plan(host="0.0.0.0")

    assert flags["bindAddress"] == "0.0.0.0"
    assert flags["brokerIP1"] == shown_host("0.0.0.0") == local_address()
    assert (near_host("0.0.0.0"), near_host("::"), near_host(HOST)) == (HOST, "::1", HOST)


def test_a_mistake_in_an_option_shows() -> None:
    with pytest.raises(SettingsError, match="did you mean flushDiskType"):
        plan(flushDiskTyp="SYNC_FLUSH")


@pytest.mark.usefixtures("_all_ports_are_free")
def test_a_port_that_is_needed_twice_is_refused() -> None:
    (flags,) = plan(port=20_911, metrics_port=20_909)

    with pytest.raises(SettingsError, match="the fast lane of broker-a and metrics of broker-a"):
        check_ports(HOST, 0, [flags])
    with pytest.raises(SettingsError, match="the name server and broker-a both need port 20911"):
        check_ports(HOST, 20_911, [flags])


@pytest.mark.usefixtures("_all_ports_are_free")
def test_ports_of_metrics_count_only_where_there_are_metrics() -> None:
    (flags,) = plan(port=20_911, metrics_port=20_909, metricsExporterType="DISABLE")

    check_ports(HOST, 0, [flags])


def test_a_taken_port_is_reported_with_its_flag() -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=r"for the name server.*--namesrv-port"):
            check_ports(HOST, port, plan())
        with pytest.raises(SettingsError, match=r"for metrics of broker-a.*--metrics-port"):
            check_ports(HOST, 0, plan(metrics_port=port))


def test_a_port_without_neighbours_and_a_host_of_others_are_refused() -> None:
    with pytest.raises(SettingsError, match="use 3 to 65534"):
        check_ports(HOST, 0, plan(port=1))
    with pytest.raises(SettingsError, match="name an address of this machine"):
        check_ports("192.0.2.77", 0, plan())
