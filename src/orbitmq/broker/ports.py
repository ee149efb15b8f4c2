"""The ports of a broker: p for all, p - 2 as fast lane, p + 1 for slaves.

Java clients and slaves work two of them out from the first, so that they must lie side by side.
"""

from __future__ import annotations

import random
from typing import Final

from orbitmq.errors import SettingsError
from orbitmq.transport.own_machine import is_free

FAST_LANE: Final = -2
REPLICATION: Final = 1
_TRIES: Final = 200
_PORT_MAX: Final = 65535
# Below those that systems give to outgoing connections: a broker that is started again on its port
# would find it taken by one of them.
_LOWEST: Final = 1024
_HIGHEST: Final = 32767
# Of the system: programs that set the seed of their random numbers, as test runners do, would try
# the same ports in the same order, and all at once.
_CHANCE: Final = random.SystemRandom()


def find_port(bind_address: str) -> int:
    """Find a port p such that p - 2, p and p + 1 are free at this moment."""
    for _ in range(_TRIES):
        port = _CHANCE.randrange(_LOWEST - FAST_LANE, _HIGHEST - REPLICATION)
        if all(is_free(bind_address, port + step) for step in (0, FAST_LANE, REPLICATION)):
            return port
    raise SettingsError(
        f"no three free ports p - 2, p and p + 1 were found on {bind_address} in {_TRIES} tries",
        hint="set listenPort to a port whose neighbours are free",
    )


def check_port(port: int) -> None:
    """Raise when a broker at this port would not have those beside it."""
    if port + FAST_LANE < 1 or port + REPLICATION > _PORT_MAX:
        raise SettingsError(
            f"listenPort={port} leaves no room for the ports {port + FAST_LANE} and "
            f"{port + REPLICATION}, which a broker uses too",
            hint=f"{1 - FAST_LANE} to {_PORT_MAX - REPLICATION} are possible",
        )
