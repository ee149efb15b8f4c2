"""Hooks that run before and after each call, on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orbitmq.protocol.command import Command


class RpcHook(Protocol):
    """Sees every request and its answer; may change them, or refuse them by raising.

    On a client it runs before a request is sent and after its answer arrives; the caller gets the
    error it raises. On a server it runs before a request is handled and before its answer is sent;
    the error it raises becomes the answer.
    """

    def before_request(self, address: str, request: Command) -> None:
        """Run before the request is sent or handled."""

    def after_response(self, address: str, request: Command, response: Command | None) -> None:
        """Run after the answer; None for a one-way request or a failed call."""
