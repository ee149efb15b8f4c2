"""The ports of a broker: p for all requests, p - 2 as fast lane, p + 1 for slaves.

Java clients and slaves compute the other two from the first, so the distances are fixed.
"""

from __future__ import annotations

import random
from typing import Final

from orbitmq.errors import SettingsError
from orbitmq.transport.local_machine import is_free

FAST_LANE: Final = -2
REPLICATION: Final = 1
_ATTEMPTS: Final = 200
_PORT_MAX: Final = 65535
# Below the ports that systems use for outgoing connections: one of those could take the port of a
# broker while it restarts.
_LOWEST: Final = 1024
_HIGHEST: Final = 32767
# Not seeded: programs that seed their random numbers, as test runners do, would try the same ports
# in the same order, concurrently.
_RANDOM: Final = random.SystemRandom()


def find_port(bind_address: str) -> int:
    """Find a port p such that p - 2, p and p + 1 are free now."""
    for _ in range(_ATTEMPTS):
        port = _RANDOM.randrange(_LOWEST - FAST_LANE, _HIGHEST - REPLICATION)
        if all(is_free(bind_address, port + step) for step in (0, FAST_LANE, REPLICATION)):
            return port
    raise SettingsError(
        f"found no three free ports p - 2, p and p + 1 on {bind_address} in {_ATTEMPTS} attempts",
        hint="set listenPort to a port whose neighbours are free",
    )


def check_port(port: int) -> None:
    """Raise if the neighbours of this port are not valid ports."""
    if port + FAST_LANE < 1 or port + REPLICATION > _PORT_MAX:
        raise SettingsError(
            f"listenPort={port} leaves no room for the ports {port + FAST_LANE} and "
            f"{port + REPLICATION}, which a broker uses too",
            hint=f"use {1 - FAST_LANE} to {_PORT_MAX - REPLICATION}",
        )
