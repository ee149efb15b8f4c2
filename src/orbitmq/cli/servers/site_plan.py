"""The plan of `orbitmq up`: its name servers and brokers, their folders and ports."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.broker.app import load_settings
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.ports import FAST_LANE, REPLICATION, check_port, find_port
from orbitmq.broker.replication.assembly import check_role
from orbitmq.broker.replication.config import BrokerRole, ReplicationConfig
from orbitmq.errors import SettingsError
from orbitmq.model.routes import MASTER_ID
from orbitmq.settings import Settings
from orbitmq.transport.local_machine import free_port, is_free, local_address

_PORT_MAX: Final = 65535
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


def broker_id_of(flags: Mapping[str, str]) -> int:
    """The id of a planned broker: 0 for a master."""
    return int(flags["brokerId"])


def name_of(flags: Mapping[str, str]) -> str:
    """What a planned broker is called in logs and errors."""
    number = broker_id_of(flags)
    return f"{flags['brokerName']}-slave-{number}" if number else flags["brokerName"]


def plan_name_servers(count: int, *, folder: Path, host: str, port: int) -> list[dict[str, str]]:
    """The options of each name server; with port 0 each finds a free one."""
    return [
        {
            "bindAddress": host,
            "listenPort": str(port + number if port else 0),
            # The first one uses the folder that it has without others.
            "kvConfigPath": str(
                folder.absolute() / (f"namesrv-{number + 1}" if number else "") / "kvConfig.json"
            ),
        }
        for number in range(count)
    ]


def plan_brokers(
    count: int,
    *,
    slaves: int = 0,
    folder: Path,
    host: str,
    port: int,
    metrics_port: int,
    options: Mapping[str, str],
) -> list[dict[str, str]]:
    """The options of each broker, masters first; raises if one is wrong. Port 0 finds free ones."""
    plan = []
    found: set[int] = set()
    # The first slave of every broker, then the second: more slaves leave the others' ports alone.
    for place in range(count * (slaves + 1)):
        slave, number = divmod(place, count)
        name = f"broker-{chr(ord('a') + number)}"
        flags = {
            "bindAddress": host,
            "brokerIP1": shown_host(host),
            "brokerName": name,
            "brokerId": str(MASTER_ID),
            "listenPort": str(
                port + place * _PORT_STEP if port else _free_port(find_port, host, found)
            ),
            "storePathRootDir": str(
                folder.absolute() / (f"{name}-slave-{slave}" if slave else name)
            ),
            "metricsExporterType": "PROM",
            "metricsPromExporterHost": host,
            "metricsPromExporterPort": str(
                metrics_port + place if metrics_port else _free_port(free_port, host, found)
            ),
            **_FILE_SIZES,
            **options,
        }
        flags = _with_role(flags, slave, has_slaves=slaves > 0)
        _check(flags, is_alone=count * (slaves + 1) == 1)
        plan.append(flags)
    return plan


def _with_role(flags: Mapping[str, str], slave: int, *, has_slaves: bool) -> dict[str, str]:
    """Add what makes a broker a master, or the slave with this number."""
    if slave:
        role = {"brokerId": str(slave), "brokerRole": str(BrokerRole.SLAVE)}
    elif has_slaves and _loaded(flags).source_of("brokerRole") == "default":
        # A message is on two brokers when it is acknowledged.
        role = {"brokerRole": str(BrokerRole.SYNC_MASTER)}
    else:
        role = {}
    return {**flags, **role}


def _check(flags: Mapping[str, str], *, is_alone: bool) -> None:
    """Raise if an option is wrong."""
    settings = _loaded(flags)
    check_role(settings.of(ReplicationConfig).role, settings.of(BrokerConfig).broker_id)
    if not is_alone and settings.source_of("storePathCommitLog") != "default":
        # Two brokers would write the same files: only storePathRootDir has a lock.
        raise SettingsError(
            "storePathCommitLog would be the same for all brokers",
            hint="leave it out: each has its log in its own folder below --dir",
        )


def _loaded(flags: Mapping[str, str]) -> Settings:
    return load_settings(environment=os.environ, flags=flags)


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


def check_ports(
    host: str, name_servers: Sequence[Mapping[str, str]], brokers: Sequence[Mapping[str, str]]
) -> None:
    """Raise if the host cannot be bound to, or a port is needed twice or taken."""
    free_port(host)
    owners: dict[int, str] = {}
    for port in _ports(name_servers, brokers):
        if port.number > _PORT_MAX:
            raise SettingsError(
                f"{port.owner} would need port {port.number}, and {_PORT_MAX} is the highest",
                hint=f"choose a lower one with {port.flag}",
            )
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


def _ports(
    name_servers: Sequence[Mapping[str, str]], brokers: Sequence[Mapping[str, str]]
) -> Iterator[_Port]:
    for number, server in enumerate(name_servers, start=1):
        if port := int(server["listenPort"]):
            owner = f"name server {number}" if len(name_servers) > 1 else "the name server"
            yield _Port(port, owner, "--namesrv-port")
    for flags in brokers:
        name, port = name_of(flags), int(flags["listenPort"])
        check_port(port)
        yield _Port(port, name, "--broker-port")
        yield _Port(port + FAST_LANE, f"the fast lane of {name}", "--broker-port")
        if broker_id_of(flags) == MASTER_ID:
            replication = int(flags.get("haListenPort", 0)) or port + REPLICATION
            yield _Port(replication, f"the slaves of {name}", "--broker-port")
        if shows_metrics(flags):
            metrics = int(flags["metricsPromExporterPort"])
            yield _Port(metrics, f"metrics of {name}", "--metrics-port")
