"""Ports that nobody else gets as long as a test holds them, whether it listens on them or not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

_HOST: Final = "127.0.0.1"
_TRIES: Final = 200


@contextmanager
def held_port(*steps: int) -> Iterator[int]:
    """Hold a port p and p + each of `steps`.

    It is one of those that the system gives away by itself, but for those that are bound. On Linux
    who sets SO_REUSEADDR, as our servers do, may listen on it beside the socket that holds it.
    """
    for _ in range(_TRIES):
        with ExitStack() as holding:
            first = holding.enter_context(_bound(0))
            port = int(first.getsockname()[1])
            try:
                for step in steps:
                    holding.enter_context(_bound(port + step))
            except (OSError, OverflowError):
                continue
            yield port
            return
    raise OSError(f"no port of {_HOST} was found that is free with those at {steps}")


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    try:
        # Alone first, so that it is nobody's; then shared with who listens.
        bound.bind((_HOST, port))
    except BaseException:
        bound.close()
        raise
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return bound
