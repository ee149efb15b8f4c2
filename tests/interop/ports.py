"""Ports of this machine for servers that bind them later: no two processes of tests get the same.

A server in a child process binds its port seconds after it was chosen, and may give it up and take
it again meanwhile. So the process that chose it keeps it for as long as it lives: it holds a lock of
the byte of that number in a file that all runs on this machine share. Locks end with their process.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from functools import cache
from pathlib import Path
from secrets import randbelow

# Below the range that the system gives to outgoing connections, so that none takes a chosen port.
_PORTS = range(20_000, 32_000)
_ATTEMPTS = 200

_own: set[int] = set()


def free_port(*neighbours: int) -> int:
    """A port p of 127.0.0.1 for this process, on which nobody listens, nor on p + n for each of `neighbours`."""
    for _ in range(_ATTEMPTS):
        # Not the `random` module: the test runner seeds it anew for every test.
        port = _PORTS.start + randbelow(len(_PORTS))
        if all(_is_ours(port + step) and _is_free(port + step) for step in (0, *neighbours)):
            return port
    raise OSError(f"no free port with neighbours {neighbours} in {_ATTEMPTS} attempts")


def _is_ours(port: int) -> bool:
    """Take a port for this process; False if it was taken before, here or elsewhere."""
    if port in _own:
        return False
    try:
        fcntl.lockf(_shared_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _own.add(port)
    return True


@cache
def _shared_file() -> int:
    """The file of the locks, open for good: to close it once would end them all."""
    path = Path(tempfile.gettempdir()) / f"orbitmq-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            # Everywhere, not only on loopback: some official servers cannot be told an address.
            probe.bind(("", port))
        except OSError:
            return False
    return True
