"""This machine's name, addresses and free ports."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from orbitmq.errors import SettingsError


def host_name() -> str:
    """Return the host name; empty if the machine has none."""
    return socket.gethostname()


def local_address() -> str:
    """Return an address of this machine that others may reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the system only chooses which of its addresses it would use.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def address_of(host: str) -> str:
    """Resolve a host name, preferring IPv4; an address is returned as it is."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingsError(
            f"the name {host!r} has no address: {error}",
            hint="set an address of this machine, for example with brokerIP1",
        ) from error
    family, *_, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(address[0]).partition("%")[0] if family == socket.AF_INET6 else str(address[0])


def is_free(bind_address: str, port: int) -> bool:
    """Whether a port could be listened on at this moment."""
    family = socket.AF_INET6 if ":" in bind_address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind_address, port))
        except OSError:
            return False
    return True


@contextmanager
def reserved_ports(bind_address: str, *ports: int) -> Iterator[None]:
    """Keep ports from others during a block; a port already in use fails later, on listening."""
    family = socket.AF_INET6 if ":" in bind_address else socket.AF_INET
    with ExitStack() as holders:
        for port in ports:
            # Without SO_REUSEADDR, which would let others bind the port as well.
            holder = holders.enter_context(socket.socket(family, socket.SOCK_STREAM))
            with suppress(OSError):
                holder.bind((bind_address, port))
        yield


def free_port(bind_address: str) -> int:
    """Find a port that is free at this moment."""
    family = socket.AF_INET6 if ":" in bind_address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((bind_address, 0))
        except OSError as error:
            raise SettingsError(
                f"cannot listen on {bind_address}: {error.strerror or error}",
                hint="name an address of this machine",
            ) from error
        return int(probe.getsockname()[1])
