"""Signatures: how a request proves who sent it (RocketMQ's ACL, both generations).

The signed content is all field values, in the order of their names and without separators, followed
by the body. The signature is its HMAC-SHA1 in base64, sent as a field.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from orbitmq.errors import SignatureError

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105  # the name of a field
SIGNATURE: Final = "Signature"
# Compat: fields that some clients leave out of the content, or add after signing:
#   _UNIQUE_KEY_QUERY      Java before 4.9.4
#   SecurityToken          Go
#   __ZONE_NAME, _MODE     Java, when a zone is configured
_SOMETIMES_UNSIGNED: Final = (
    frozenset({"_UNIQUE_KEY_QUERY"}),
    frozenset({SECURITY_TOKEN}),
    frozenset({"__ZONE_NAME", "__ZONE_MODE"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The signer: an access key, a secret key, and a token for temporary credentials."""

    access_key: str
    secret_key: str
    security_token: str = ""

    def __repr__(self) -> str:
        return f"Credentials(access_key={self.access_key!r})"


def signed_fields(fields: dict[str, str], body: bytes, credentials: Credentials) -> dict[str, str]:
    """Return the fields with access key, token and signature added."""
    signed = {name: value for name, value in fields.items() if name != SIGNATURE}
    signed[ACCESS_KEY] = credentials.access_key
    if credentials.security_token:
        signed[SECURITY_TOKEN] = credentials.security_token
    signed[SIGNATURE] = _signature(signed, body, credentials.secret_key)
    return signed


def verify(fields: dict[str, str], body: bytes, secret_key: str) -> None:
    """Raise SignatureError unless the owner of the secret signed exactly these fields and body."""
    claimed = fields.get(SIGNATURE)
    if not claimed or not fields.get(ACCESS_KEY):
        raise SignatureError(
            "the request is not signed",
            hint="give the client an access key and a secret key",
        )
    content = {name: value for name, value in fields.items() if name != SIGNATURE}
    for unsigned in _variants(content):
        tried = {name: value for name, value in content.items() if name not in unsigned}
        if hmac.compare_digest(_signature(tried, body, secret_key).encode(), claimed.encode()):
            return
    raise SignatureError(
        f"the signature of access key {fields[ACCESS_KEY]!r} does not match the request",
        hint="check the secret key of the client",
    )


def _variants(content: dict[str, str]) -> list[frozenset[str]]:
    """List the sets of fields that a client may have left unsigned, the empty one first."""
    variants: list[frozenset[str]] = [frozenset()]
    for names in _SOMETIMES_UNSIGNED:
        if names & content.keys():
            variants += [variant | names for variant in variants]
    return variants


def _signature(fields: dict[str, str], body: bytes, secret_key: str) -> str:
    # Compat: Java orders names by UTF-16 unit; field names are ASCII, where this is the same.
    content = "".join(value for _, value in sorted(fields.items())).encode() + body
    return base64.b64encode(hmac.digest(secret_key.encode(), content, hashlib.sha1)).decode()
