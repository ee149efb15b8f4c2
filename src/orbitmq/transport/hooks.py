"""Hooks: what runs before and after each call, on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orbitmq.protocol.command import Command


class RpcHook(Protocol):
    """Sees every request and its answer; may change them, or refuse them by raising.

    On a client it runs before a request is sent and after its answer came: what it raises is what
    the caller gets. On a server it runs before a request is handled and before its answer is
    sent: what it raises becomes the answer.
    """

    def before_request(self, address: str, request: Command) -> None:
        """Run before the request goes on its way."""

    def after_response(self, address: str, request: Command, response: Command | None) -> None:
        """Run after the answer; None for a one-way request or a failed call."""
