"""Reserved offsets: numbers for queues in memory, reserved on disk before use.

A message in memory is gone after a restart, but its number must not be reused, or a consumer that
has read it would skip another message. So numbers are assigned only below a bound that is on disk.
After a crash a queue resumes at its bound, after a clean stop where it ended.

File layout of `<root>/orbitmq/reserved_offsets`, two lines: a JSON document, and its CRC-32 in
eight hexadecimal digits.

Threads: one at a time, under the store's append lock.
Crash: the file is replaced as a whole, and on disk before a number below a new bound is used.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.disk import PRIVATE, FileModes, replace_file
from orbitmq.errors import StoreDamagedError
from orbitmq.model.queues import PhysicalOffset, QueueOffset
from orbitmq.store.files.descriptor import write_failure
from orbitmq.store.reading.memory_log import FIRST_OFFSET

if TYPE_CHECKING:
    from orbitmq.store.reading.memory_log import MemoryQueue

FILE_NAME: Final = "reserved_offsets"
# Numbers of a queue, and bytes of the memory log, that one write reserves; a crash wastes them.
STEP: Final = 100_000
BYTES_STEP: Final = 2**40

# Numbers of a queue that belong to one epoch of masters. No queue uses them up: with 100,000 messages
# a second it would take four months. After 8,000 promotions numbers leave the range that JavaScript
# and other readers of JSON represent exactly, 2^53.
EPOCH_STEP: Final = 2**40
# Above this epoch only reservations keep numbers apart; queue numbers have 63 bits.
_EPOCH_MAX: Final = 2**22

QueueKey = tuple[str, int]


def first_number(epoch: int) -> QueueOffset:
    """The lowest number that a master of an epoch gives to a message in memory.

    Messages in memory are not copied, and a promoted slave cannot know the last number that the
    master before it gave. So it counts where no master of an older epoch can have counted.
    """
    return QueueOffset(min(epoch, _EPOCH_MAX) * EPOCH_STEP)


class _Queue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    queue_id: int
    bound: int


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    physical_bound: int
    queues: list[_Queue]
    # Topics that are kept on disk again and have yet to resume there at these bounds.
    on_disk: list[str]


class ReservedOffsets:
    """The bounds of one store."""

    def __init__(self, folder: Path, modes: FileModes = PRIVATE) -> None:
        self._path = folder / FILE_NAME
        self._modes = modes
        found = _read(self._path)
        # Numbers below are used, or may be.
        self.bounds: Mapping[QueueKey, QueueOffset] = {
            (queue.topic, queue.queue_id): QueueOffset(queue.bound) for queue in found.queues
        }
        self.physical_bound = PhysicalOffset(found.physical_bound)
        self.on_disk: Set[str] = frozenset(found.on_disk)

    def cover(self, queue: MemoryQueue, count: int, physical_end: int) -> bool:
        """Whether a queue may use its next `count` numbers, and the log all bytes below an end."""
        bound = self.bounds.get((queue.topic, queue.queue_id), 0)
        return queue.end + count <= bound and physical_end <= self.physical_bound

    def write(
        self,
        bounds: Mapping[QueueKey, QueueOffset],
        physical_bound: PhysicalOffset,
        on_disk: Set[str] = frozenset(),
    ) -> None:
        """Replace all bounds, and return once they are on disk."""
        if (bounds, physical_bound, on_disk) == (self.bounds, self.physical_bound, self.on_disk):
            return
        document = _Document(
            physical_bound=physical_bound,
            queues=[_Queue(topic, queue_id, end) for (topic, queue_id), end in bounds.items()],
            on_disk=sorted(on_disk),
        )
        content = msgspec.json.encode(document)
        try:
            replace_file(self._path, b"%b\n%08x\n" % (content, zlib.crc32(content)), self._modes)
        except OSError as error:
            raise write_failure(self._path, error, what="reserved offsets") from error
        self.bounds = dict(bounds)
        self.physical_bound = physical_bound
        self.on_disk = frozenset(on_disk)


def _read(path: Path) -> _Document:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return _Document(FIRST_OFFSET, [], [])
    document, _, checksum = content.partition(b"\n")
    try:
        if int(checksum, 16) == zlib.crc32(document):
            return msgspec.json.decode(document, type=_Document)
        reason = f"its checksum is {zlib.crc32(document):08x}, stored {checksum.decode().strip()}"
    except (ValueError, msgspec.DecodeError) as error:
        reason = str(error)
    raise StoreDamagedError(
        f"{path} is damaged: {reason}",
        hint="restore it; or delete it and reset the consumers of topics in memory, whose offsets "
        "then restart at 0",
    )
