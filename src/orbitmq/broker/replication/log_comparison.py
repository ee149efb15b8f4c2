"""Compares a slave's log with its master's before the slave copies it.

A record holds its own offset, its time and its number in the queue. So two logs that have the same
bytes there are the same up to there. A slave whose log differs never merges. It stops, and says
from where on it differs; under a master of a larger epoch it cuts what differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.disk import off_loop
from orbitmq.errors import CopyError, ProtocolError, RemoteError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.key_values import KeyValueTable
from orbitmq.protocol.requests.queries import ReadMessage
from orbitmq.protocol.requests.statistics import GetRuntime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.store.message_store import MessageStore
    from orbitmq.transport.rpc_client import RpcClient

_EMPTY_HINT: Final = "stop the slave, move its store away, and it copies the whole log"
_LONGER_HINT: Final = (
    "these may be the only copies of acknowledged messages: look at them before you move the "
    "slave's store away, after which it copies the whole log"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The end of a slave's log, which its master does not have."""

    master: str
    at: PhysicalOffset
    end: PhysicalOffset
    # Where the master's log ends.
    end_there: int

    @property
    def bytes(self) -> int:
        """How many bytes the master does not have."""
        return self.end - self.at

    def error(self) -> CopyError:
        """Why the slave does not follow, unless the master's epoch is larger."""
        if self.at == self.end_there:
            text = (
                f"the log ends at {self.end}, and at the master {self.master} at {self.end_there}"
            )
        else:
            text = (
                f"the log differs from that of the master {self.master} from {self.at} on, and has "
                f"{self.bytes} bytes there"
            )
        return CopyError(text, hint=_LONGER_HINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogComparison:
    """Compares the log of this slave with that of a master."""

    store: MessageStore
    rpc: RpcClient

    async def find(self, master: str) -> Difference | None:
        """Return what this log has and the master's has not; None if it is the beginning of that.

        Raises CopyError if the two have no part in common.
        """
        store = self.store
        if store.copy.is_empty:
            return None
        end = store.log_end
        start_there, end_there = await self.range_of(master)
        if end < start_there:
            raise CopyError(
                f"the log ends at {end}, and at the master {master} it begins at {start_there}",
                hint=_EMPTY_HINT,
            )
        differs: int | None = end_there if end > end_there else None
        newest = await off_loop(store.newest_record, min(end, end_there))
        if newest is not None and newest[0] >= start_there:
            offset, record = newest
            if not await self._is_same(master, offset, record):
                differs = await self._first_difference(master, start_there, offset)
            elif differs is not None:
                # The record may be followed by one that begins below the master's end.
                differs = min(differs, offset + len(record))
        if differs is None:
            return None
        return Difference(master=master, at=PhysicalOffset(differs), end=end, end_there=end_there)

    async def range_of(self, master: str) -> tuple[int, int]:
        """From where to where the master has the log."""
        return await self.range_at(self.rpc, master)

    @staticmethod
    async def range_at(rpc: RpcClient, broker: str) -> tuple[int, int]:
        """From where to where a broker has its log."""
        reply = await rpc.call(broker, GetRuntime())
        table = java_json.decode(reply.body, KeyValueTable).table
        try:
            return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (KeyError, ValueError) as error:
            raise ProtocolError(
                f"the broker {broker} does not say where its log begins and ends"
            ) from error

    async def _is_same(self, master: str, offset: int, record: bytes) -> bool:
        try:
            reply = await self.rpc.call(
                master, ReadMessage(physical_offset=Long(offset), hidden=True)
            )
        except RemoteError:
            # No record begins there.
            return False
        return reply.body == record

    async def _first_difference(self, master: str, start: int, end: int) -> int:
        """Where the first record below `end` begins that the master does not have."""
        first = end
        for offsets in await off_loop(self._files_of_records, start, end):
            index = await self._first_other(master, offsets)
            first = offsets[index]
            if index:
                break
        return first

    def _files_of_records(self, start: int, end: int) -> list[list[int]]:
        """Where the records begin in each file, the newest file first."""
        return [
            offsets
            for file_start in self.store.file_starts()
            if start <= file_start <= end
            and (offsets := self.store.record_offsets(file_start, end))
        ][::-1]

    async def _first_other(self, master: str, offsets: Sequence[int]) -> int:
        """The first of these records that the master does not have; it does not have the last."""
        low, high = 0, len(offsets) - 1
        while low < high:
            middle = (low + high) // 2
            record = await off_loop(self._record, offsets[middle])
            if await self._is_same(master, offsets[middle], record):
                low = middle + 1
            else:
                high = middle
        return low

    def _record(self, offset: int) -> bytes:
        return self.store.record_at(offset, hidden=True) or b""
