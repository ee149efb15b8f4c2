"""Signs every request of a client that was given keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.signing import Credentials, signed_fields

if TYPE_CHECKING:
    from orbitmq.client.options import ClientOptions
    from orbitmq.protocol.command import Command


class Signing:
    """An RPC hook that signs; the last to run, since others may add fields."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def before_request(self, _address: str, request: Command) -> None:
        """Add access key and signature to the fields."""
        request.fields = signed_fields(request.fields, request.body, self._credentials)

    def after_response(self, address: str, request: Command, response: Command | None) -> None:
        """Leave answers as they are: servers do not sign them."""


def signing_of(options: ClientOptions) -> list[Signing]:
    """Give the hook that signs for a client, if it was given keys."""
    if not options.access_key:
        return []
    return [
        Signing(
            Credentials(
                access_key=options.access_key,
                secret_key=options.secret_key,
                security_token=options.security_token,
            )
        )
    ]
