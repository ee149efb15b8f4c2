"""Listening on a port of this machine."""

from __future__ import annotations

import socket

from orbitmq.errors import SettingsError
from orbitmq.transport.addresses import format_address


def listen_on(bind_address: str, port: int, *, backlog: int) -> socket.socket:
    """Open a socket that listens and never blocks; raises SettingsError if it cannot."""
    family = socket.AF_INET6 if ":" in bind_address else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((bind_address, port))
        listening.listen(backlog)
        listening.settimeout(0)
    except OSError as error:
        listening.close()
        raise SettingsError(
            f"cannot listen on {format_address((bind_address, port))}: {error.strerror}",
            hint=(
                "the name has no address; use an address of this machine"
                if isinstance(error, socket.gaierror)
                else "another process may use the port, or this machine does not have the address"
            ),
        ) from error
    return listening
