"""What `orbitmq up` is about to run: which brokers, where, on which ports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.broker.app import load_settings
from orbitmq.broker.ports import FAST_LANE, check_port, find_port
from orbitmq.errors import SettingsError
from orbitmq.transport.local_machine import free_port, is_free, local_address

# Brokers use their port, the one two below and the one above.
_PORT_STEP: Final = 10
# Enough for a laptop, and made at once; a broker of its own has RocketMQ's sizes.
_FILE_SIZES: Final = {
    "mappedFileSizeCommitLog": str(128 << 20),
    "maxHashSlotNum": "500000",
    "maxIndexNum": "2000000",
}
# What listens everywhere is told of by an address that clients can reach.
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # not bound to here


def shown_host(host: str) -> str:
    """The address to tell users and clients of."""
    return local_address() if host in _EVERYWHERE else host


def near_host(host: str) -> str:
    """The address at which processes of this machine find it."""
    return _EVERYWHERE.get(host, host)


def shows_metrics(flags: Mapping[str, str]) -> bool:
    """Whether a broker of these options has metrics to look at."""
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
    """Give the options of each broker; a mistake in them shows here. Port 0 finds free ones."""
    plan = []
    found: set[int] = set()
    for number in range(count):
        name = f"broker-{chr(ord('a') + number)}"
        flags = {
            "bindAddress": host,
            "brokerIP1": shown_host(host),
            "brokerName": name,
            "listenPort": str(
                port + number * _PORT_STEP if port else _another(find_port, host, found)
            ),
            "storePathRootDir": str(folder.absolute() / name),
            "metricsExporterType": "PROM",
            "metricsPromExporterHost": host,
            "metricsPromExporterPort": str(
                metrics_port + number if metrics_port else _another(free_port, host, found)
            ),
            **_FILE_SIZES,
            **options,
        }
        load_settings(environment=os.environ, flags=flags)
        plan.append(flags)
    return plan


def _another(find: Callable[[str], int], host: str, found: set[int]) -> int:
    """Find a port that is not beside one found before."""
    while (port := find(host)) in found:
        pass
    found.update(range(port - _PORT_STEP, port + _PORT_STEP + 1))
    return port


class _Port(NamedTuple):
    """A port that is needed, by whom, and by which flag it can be changed."""

    number: int
    owner: str
    flag: str


def check_ports(host: str, name_server_port: int, plan: Sequence[Mapping[str, str]]) -> None:
    """Raise when the host cannot be listened on, or a port is needed twice or taken."""
    free_port(host)
    owners: dict[int, str] = {}
    for port in _ports(name_server_port, plan):
        if port.number in owners:
            raise SettingsError(
                f"{owners[port.number]} and {port.owner} both need port {port.number}",
                hint=f"choose another by {port.flag}",
            )
        owners[port.number] = port.owner
        if not is_free(host, port.number):
            raise SettingsError(
                f"port {port.number} of {host}, for {port.owner}, is taken or not allowed",
                hint=f"another orbitmq up may run on this machine; choose another by {port.flag}",
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
