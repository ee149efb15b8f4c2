"""Where a broker is: its group, its id in it, its addresses and ports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.ports import REPLICATION, check_port, find_port
from orbitmq.broker.replication.config import ReplicationConfig
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.registration import RegisterBroker
from orbitmq.transport.addresses import format_address, parse_addresses
from orbitmq.transport.config import ServerConfig
from orbitmq.transport.local_machine import local_address

if TYPE_CHECKING:
    from orbitmq.settings import Settings

_ALL_ADDRESSES: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  # compared, not bound to


class Place:
    """What one broker is found by; its ports are chosen when this is made."""

    def __init__(self, settings: Settings, advertised_port: int | None) -> None:
        """Choose ports; `advertised_port` differs from the own one behind a proxy."""
        self._settings = settings
        server = settings.of(ServerConfig)
        self.port = server.listen_port or find_port(server.bind_address)
        check_port(self.port)
        self._advertised_port = advertised_port or self.port
        self.replication_port = settings.of(ReplicationConfig).port or self.port + REPLICATION
        # Fails on a mistake before anything is opened.
        self.name_servers()
        configured = settings.of(BrokerConfig).advertised_address
        self.host = configured or _advertised_host(server.bind_address)

    @property
    def advertised(self) -> str:
        """The address that clients connect to."""
        return format_address((self.host, self._advertised_port))

    def name(self) -> str:
        """The name of the broker's group."""
        return self._settings.of(BrokerConfig).broker_name

    def name_servers(self) -> list[str]:
        """The name servers that it registers with."""
        return parse_addresses(self._settings.of(BrokerConfig).name_servers)

    def identity(self) -> RegisterBroker:
        """What name servers are told of this broker."""
        config = self._settings.of(BrokerConfig)
        host = config.replication_address or self.host
        return RegisterBroker(
            broker_name=config.broker_name,
            broker_address=self.advertised,
            cluster_name=config.cluster_name,
            ha_address=format_address((host, self.replication_port)),
            broker_id=Long(config.broker_id),
            enable_acting_master=False,
        )


def _advertised_host(bind_address: str) -> str:
    """The address for clients, if none is configured."""
    return local_address() if bind_address in _ALL_ADDRESSES else bind_address
