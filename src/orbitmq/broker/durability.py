"""What a reply to a send says about the safety of its messages."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec

from orbitmq.protocol.codes import ResponseCode

# Length of a name, and length of a value, in a binary header.
_NAME: Final = struct.Struct(">h")
_VALUE: Final = struct.Struct(">i")
_LATE: Final = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "the flush took longer than syncFlushTimeout",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "the slaves took longer than slaveTimeout",
}


@dataclass(frozen=True)
class Durability:
    """How safe messages were when their send was answered."""

    code: ResponseCode = ResponseCode.SUCCESS
    # Whether they are on the disk of this broker.
    on_disk: bool = False
    # How many brokers have them, this one among them, and how many on disk; None if nobody counted.
    copies: int | None = None
    copies_on_disk: int | None = None

    @property
    def place(self) -> str:
        """Where they are at this broker, as a reply spells it."""
        return "DISK" if self.on_disk else "MEMORY"

    @property
    def late(self) -> str:
        """What took too long; empty if nothing did."""
        return _LATE.get(self.code, "")

    # Perf: encoded once for all replies of a round.
    @cached_property
    def json_fields(self) -> bytes:
        """The fields of a reply as members of a JSON object."""
        return msgspec.json.encode(self._fields)[1:-1]

    @cached_property
    def binary_fields(self) -> bytes:
        """The fields of a reply as a binary header has them."""
        return b"".join(
            _NAME.pack(len(name)) + name.encode() + _VALUE.pack(len(value)) + value.encode()
            for name, value in self._fields.items()
        )

    @property
    def _fields(self) -> dict[str, str]:
        fields = {"durability": self.place}
        if self.copies is not None:
            fields |= {"copies": str(self.copies), "copiesOnDisk": str(self.copies_on_disk)}
        return fields


IN_MEMORY: Final = Durability()
ON_DISK: Final = Durability(on_disk=True)
FLUSH_TIMEOUT: Final = Durability(ResponseCode.FLUSH_DISK_TIMEOUT)
