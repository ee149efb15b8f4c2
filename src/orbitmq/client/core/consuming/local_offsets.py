"""The file in which a broadcasting consumer stores its offsets.

    <directory>/<client id>/<group>/offsets.json        its previous content is in offsets.json.bak
    {"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:5}}

Compat: Java's client reads and writes the same file at the same path.
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
    """Return the path of a group's file; a leading `~` is the user's home."""
    for part in (client_id, group):
        if part in {"", ".."} or Path(part).name != part:
            raise SettingsError(
                f"{part!r} cannot be the name of a folder for offsets",
                hint="do not use / in the group, client_ip, instance_name and unit_name",
            )
    return directory.expanduser() / client_id / group / "offsets.json"


def encode_offsets(offsets: dict[MessageQueue, int]) -> bytes:
    """Encode the content of the file."""
    return java_json.encode(QueueOffsetTable(offsets=ObjectKeyed(offsets)))


def decode_offsets(content: bytes) -> dict[MessageQueue, int]:
    """Decode the content of the file; raises ProtocolError if it is damaged."""
    return dict(java_json.decode(content, QueueOffsetTable).offsets)


class FoundOffsets(NamedTuple):
    """The offsets in a file or its backup."""

    offsets: dict[MessageQueue, int]
    is_damaged: bool  # the file is; the offsets come from its backup


def find_offsets(path: Path, content: bytes | None, backup: bytes | None) -> FoundOffsets:
    """Decode the offsets of a file, or of its backup if the file is damaged or missing.

    If neither exists, it is a first start. If both are damaged, it is an error: a consumer that
    started anyway would read everything again, or miss messages.
    """
    damage: ProtocolError | None = None
    for name, text in ((path.name, content), (f"{path.name}.bak", backup)):
        # A crash of Java's client can leave an empty file, which counts as missing.
        if not text:
            continue
        try:
            return FoundOffsets(decode_offsets(text), is_damaged=damage is not None)
        except ProtocolError as error:
            log.warning("offset file is damaged file=%s reason=%s", path.with_name(name), error)
            damage = error
    if damage is not None:
        raise LocalOffsetsError(
            f"neither {path} nor its backup can be read: {damage}",
            hint="delete both; the consumer then starts as configured by consume_from",
        ) from damage
    return FoundOffsets({}, is_damaged=False)
