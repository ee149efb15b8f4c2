"""What `orbitmq up` is about to run, and what is wrong with it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from orbitmq.cli.servers import site_plan
from orbitmq.cli.servers.site_plan import (
    check_ports,
    near_host,
    plan_brokers,
    plan_name_servers,
    shown_host,
)
from orbitmq.errors import SettingsError
from orbitmq.transport.local_machine import local_address

HOST = "127.0.0.1"
FOLDER = Path("/kept")


@pytest.fixture
def _all_ports_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs on the machine."""
    monkeypatch.setattr(site_plan, "is_free", lambda _host, _port: True)


def plan(
    count: int = 1,
    *,
    slaves: int = 0,
    host: str = HOST,
    port: int = 0,
    metrics_port: int = 0,
    **options: str,
) -> list[dict[str, str]]:
    return plan_brokers(
        count,
        slaves=slaves,
        folder=FOLDER,
        host=host,
        port=port,
        metrics_port=metrics_port,
        options=options,
    )


def servers(count: int = 1, *, port: int = 0) -> list[dict[str, str]]:
    return plan_name_servers(count, folder=FOLDER, host=HOST, port=port)


def test_brokers_have_names_folders_and_ports_of_their_own() -> None:
    first, second = plan(2, port=20_911, metrics_port=25_557)

    assert (first["brokerName"], second["brokerName"]) == ("broker-a", "broker-b")
    assert (first["listenPort"], second["listenPort"]) == ("20911", "20921")
    assert second["metricsPromExporterPort"] == "25558"
    assert second["storePathRootDir"] == "/kept/broker-b"


def test_slaves_have_the_name_of_their_master_and_the_rest_of_their_own() -> None:
    planned = plan(2, slaves=2, port=20_911, metrics_port=25_557)

    assert [
        tuple(flags[name] for name in ("brokerName", "brokerId", "brokerRole", "listenPort"))
        for flags in planned
    ] == [
        ("broker-a", "0", "SYNC_MASTER", "20911"),
        ("broker-b", "0", "SYNC_MASTER", "20921"),
        ("broker-a", "1", "SLAVE", "20931"),
        ("broker-b", "1", "SLAVE", "20941"),
        ("broker-a", "2", "SLAVE", "20951"),
        ("broker-b", "2", "SLAVE", "20961"),
    ]
    assert planned[2]["storePathRootDir"] == "/kept/broker-a-slave-1"
    assert planned[5]["metricsPromExporterPort"] == "25562"
    # One slave less moves none of the others.
    assert planned[:4] == plan(2, slaves=1, port=20_911, metrics_port=25_557)


def test_users_choose_the_role_of_masters(monkeypatch: pytest.MonkeyPatch) -> None:
    roles = [flags["brokerRole"] for flags in plan(slaves=1, brokerRole="ASYNC_MASTER")]
    monkeypatch.setenv("ORBITMQ_brokerRole", "ASYNC_MASTER")
    master, slave = plan(slaves=1)

    assert roles == ["ASYNC_MASTER", "SLAVE"]
    assert "brokerRole" not in master
    assert slave["brokerRole"] == "SLAVE"
    with pytest.raises(SettingsError, match="brokerRole=SLAVE needs a brokerId above 0"):
        plan(slaves=1, brokerRole="SLAVE")


def test_brokers_do_not_share_a_log() -> None:
    with pytest.raises(SettingsError, match="storePathCommitLog would be the same for all"):
        plan(slaves=1, storePathCommitLog="/log")
    assert plan(storePathCommitLog="/log")


def test_name_servers_have_ports_and_files_of_their_own() -> None:
    first, second = servers(2, port=29_876)

    assert (first["listenPort"], second["listenPort"]) == ("29876", "29877")
    assert first["kvConfigPath"] == servers()[0]["kvConfigPath"] == "/kept/kvConfig.json"
    assert second["kvConfigPath"] == "/kept/namesrv-2/kvConfig.json"
    with pytest.raises(SettingsError, match="name server 2 would need port 65536"):
        check_ports(HOST, servers(2, port=65_535), plan())


@pytest.mark.usefixtures("_all_ports_are_free")
def test_port_0_finds_free_ones() -> None:
    both = plan(2)

    ports = {flags[name] for flags in both for name in ("listenPort", "metricsPromExporterPort")}
    assert len(ports) == 4
    assert "0" not in ports
    check_ports(HOST, servers(), both)


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
        check_ports(HOST, servers(), [flags])
    with pytest.raises(SettingsError, match="the name server and broker-a both need port 20911"):
        check_ports(HOST, servers(port=20_911), [flags])


@pytest.mark.usefixtures("_all_ports_are_free")
def test_ports_of_metrics_count_only_where_there_are_metrics() -> None:
    (flags,) = plan(port=20_911, metrics_port=20_909, metricsExporterType="DISABLE")

    check_ports(HOST, servers(), [flags])


def test_a_taken_port_is_reported_with_its_flag() -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=r"for the name server.*--namesrv-port"):
            check_ports(HOST, servers(port=port), plan())
        with pytest.raises(SettingsError, match=r"for metrics of broker-a.*--metrics-port"):
            check_ports(HOST, servers(), plan(metrics_port=port))


def test_a_port_without_neighbours_and_a_host_of_others_are_refused() -> None:
    with pytest.raises(SettingsError, match="use 3 to 65534"):
        check_ports(HOST, servers(), plan(port=1))
    with pytest.raises(SettingsError, match="name an address of this machine"):
        check_ports("192.0.2.77", servers(), plan())
