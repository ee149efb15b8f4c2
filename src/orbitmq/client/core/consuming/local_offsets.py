"""The file in which a broadcasting consumer keeps its offsets.

    <directory>/<client id>/<group>/offsets.json        and the content before, with .bak added
    {"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:5}}

Compat: Java's client reads and writes the same file in the same place.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

from orbitmq import java_json
from orbitmq.errors import LocalOffsetsError, ProtocolError, SettingsError
from orbitmq.java_json import ObjectKeyed
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.requests.offsets import QueueOffsetTable

log = logging.getLogger(__name__)


def offsets_path(directory: Path, client_id: str, group: str) -> Path:
    """Name the file of a group; `~` at the start of the directory is the user's home."""
    for part in (client_id, group):
        if part in {"", ".."} or Path(part).name != part:
            raise SettingsError(
                f"{part!r} cannot be the name of a folder of offsets",
                hint="leave / out of the group and of client_ip, instance_name and unit_name",
            )
    return directory.expanduser() / client_id / group / "offsets.json"


def encode_offsets(offsets: dict[MessageQueue, int]) -> bytes:
    """Write the content of the file."""
    return java_json.encode(QueueOffsetTable(offsets=ObjectKeyed(offsets)))


def decode_offsets(content: bytes) -> dict[MessageQueue, int]:
    """Read the content of the file; raises ProtocolError when it is damaged."""
    return dict(java_json.decode(content, QueueOffsetTable).offsets)


class FoundOffsets(NamedTuple):
    """What a file or its backup says."""

    offsets: dict[MessageQueue, int]
    is_damaged: bool  # the file; the offsets are those of the backup


def find_offsets(path: Path, content: bytes | None, backup: bytes | None) -> FoundOffsets:
    """Read the offsets out of a file, or out of its backup when the file is damaged or missing.

    Neither being there is a first start; none being sound is an error, since a consumer that went
    on would read everything again, or miss what came meanwhile.
    """
    damage: ProtocolError | None = None
    for name, text in ((path.name, content), (f"{path.name}.bak", backup)):
        # A file that a crash of Java's client left empty says nothing.
        if not text:
            continue
        try:
            return FoundOffsets(decode_offsets(text), is_damaged=damage is not None)
        except ProtocolError as error:
            log.warning("offsets are damaged file=%s reason=%s", path.with_name(name), error)
            damage = error
    if damage is not None:
        raise LocalOffsetsError(
            f"neither {path} nor its backup can be read: {damage}",
            hint="delete both to start where the consumer is set to start",
        ) from damage
    return FoundOffsets({}, is_damaged=False)
