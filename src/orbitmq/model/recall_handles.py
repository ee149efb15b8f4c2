"""Recall handles: what a receipt gives to take back a message that is not due yet."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

from orbitmq.errors import RecallHandleError

_VERSION: Final = "v1"
_PARTS: Final = 5
_LENGTH_MAX: Final = 4096
_TIME_DIGITS_MAX: Final = 18
_TIME_END: Final = 10**_TIME_DIGITS_MAX
# Of the id in UTF-8. Those that clients make have 32 or 56 characters.
ID_BYTES_MAX: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHandle:
    """A message that is not due yet.

    `time_ms` is a time in the second in which it is due, in the words of its slot.
    """

    topic: str
    broker_name: str
    time_ms: int
    unique_id: str

    @property
    def id_bytes(self) -> int:
        """How long the id is."""
        return len(self.unique_id.encode())

    def encode(self) -> str:
        """Write it as RocketMQ does: text in base64."""
        parts = (_VERSION, self.topic, self.broker_name, str(self.time_ms), self.unique_id)
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()

    @property
    def issued(self) -> str | None:
        """The handle for a receipt; None if it would be refused, or name another message."""
        try:
            text = self.encode()
            is_allowed = 0 < self.id_bytes <= ID_BYTES_MAX and len(text) <= _LENGTH_MAX
        except UnicodeEncodeError:
            return None
        # Only the id may have spaces, as it comes last.
        is_one = " " not in self.topic and " " not in self.broker_name
        return text if is_allowed and is_one and 0 <= self.time_ms < _TIME_END else None

    @classmethod
    def decode(cls, text: str) -> RecallHandle:
        """Read a handle; raises RecallHandleError if it is none."""
        if len(text) > _LENGTH_MAX:
            raise RecallHandleError(
                text[:60], f"it has {len(text):,} characters, above the limit of {_LENGTH_MAX:,}"
            )
        try:
            # Compat: Java accepts handles without padding, too.
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            content = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
        except (binascii.Error, ValueError) as error:
            raise RecallHandleError(text) from error
        # Compat: an id may have spaces. Java's broker would take the first word for it; its clients
        # and proxies read only what is before the id.
        parts = content.split(" ", _PARTS - 1)
        is_number = len(parts) >= _PARTS and parts[3].isascii() and parts[3].isdigit()
        if (
            parts[0] != _VERSION
            or not is_number
            or len(parts[3]) > _TIME_DIGITS_MAX
            or not parts[4]
        ):
            raise RecallHandleError(text)
        return cls(topic=parts[1], broker_name=parts[2], time_ms=int(parts[3]), unique_id=parts[4])
