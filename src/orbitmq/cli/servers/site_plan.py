"""The plan of `orbitmq up`: its brokers, their folders and ports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.broker.app import load_settings
from orbitmq.broker.ports import FAST_LANE, check_port, find_port
from orbitmq.errors import SettingsError
from orbitmq.transport.local_machine import free_port, is_free, local_address

# A broker with port p also uses p - 2 and p + 1.
_PORT_STEP: Final = 10
# Enough for a laptop, and quick to create; `orbitmq broker` uses RocketMQ's sizes.
_FILE_SIZES: Final = {
    "mappedFileSizeCommitLog": str(128 << 20),
    "maxHashSlotNum": "500000",
    "maxIndexNum": "2000000",
}
# Addresses that mean all interfaces, each with one at which processes here can connect.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # not bound to here


def shown_host(host: str) -> str:
    """The address to show to users and announce to clients."""
    return local_address() if host in _EVERYWHERE else host


def near_host(host: str) -> str:
    """The address for processes on this machine."""
    return _EVERYWHERE.get(host, host)


def shows_metrics(flags: Mapping[str, str]) -> bool:
    """Whether a broker with these options serves metrics."""
    return flags["metricsExporterType"] == "PROM"


def plan_brokers(
    count: int,
    *,
    folder: Path,
    host: str,
    port: int,
    metrics_port: int,
    options: Mapping[str, str],
) -> list[dict[str, str]]:
    """The options of each broker; raises if one is wrong. Port 0 finds free ones."""
    plan = []
    found: set[int] = set()
    for number in range(count):
        name = f"broker-{chr(ord('a') + number)}"
        flags = {
            "bindAddress": host,
            "brokerIP1": shown_host(host),
            "brokerName": name,
            "listenPort": str(
                port + number * _PORT_STEP if port else _free_port(find_port, host, found)
            ),
            "storePathRootDir": str(folder.absolute() / name),
            "metricsExporterType": "PROM",
            "metricsPromExporterHost": host,
            "metricsPromExporterPort": str(
                metrics_port + number if metrics_port else _free_port(free_port, host, found)
            ),
            **_FILE_SIZES,
            **options,
        }
        load_settings(environment=os.environ, flags=flags)
        plan.append(flags)
    return plan


def _free_port(find: Callable[[str], int], host: str, found: set[int]) -> int:
    """Find a port that is not close to one found before."""
    while (port := find(host)) in found:
        pass
    found.update(range(port - _PORT_STEP, port + _PORT_STEP + 1))
    return port


class _Port(NamedTuple):
    """A port, its user, and the flag that changes it."""

    number: int
    owner: str
    flag: str


def check_ports(host: str, name_server_port: int, plan: Sequence[Mapping[str, str]]) -> None:
    """Raise if the host cannot be bound to, or a port is needed twice or taken."""
    free_port(host)
    owners: dict[int, str] = {}
    for port in _ports(name_server_port, plan):
        if port.number in owners:
            raise SettingsError(
                f"{owners[port.number]} and {port.owner} both need port {port.number}",
                hint=f"choose another with {port.flag}",
            )
        owners[port.number] = port.owner
        if not is_free(host, port.number):
            raise SettingsError(
                f"port {port.number} of {host}, for {port.owner}, is taken or not allowed",
                hint=f"another orbitmq up may be running; choose another port with {port.flag}",
            )


def _ports(name_server_port: int, plan: Sequence[Mapping[str, str]]) -> Iterator[_Port]:
    if name_server_port:
        yield _Port(name_server_port, "the name server", "--namesrv-port")
    for flags in plan:
        name, port = flags["brokerName"], int(flags["listenPort"])
        check_port(port)
        yield _Port(port, name, "--broker-port")
        yield _Port(port + FAST_LANE, f"the fast lane of {name}", "--broker-port")
        if shows_metrics(flags):
            metrics = int(flags["metricsPromExporterPort"])
            yield _Port(metrics, f"metrics of {name}", "--metrics-port")
