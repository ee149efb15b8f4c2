"""Compares a slave's log with its master's before the slave copies it.

A record holds its own offset, its time and its number in the queue. So two logs that have the same
bytes there are the same up to there. A slave whose log differs never merges: it stops, and says
from where on it differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from orbitmq import java_json
from orbitmq.disk import off_loop
from orbitmq.errors import CopyError, ProtocolError, RemoteError
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
class LogComparison:
    """Compares the log of this slave with that of a master."""

    store: MessageStore
    rpc: RpcClient

    async def check(self, master: str) -> None:
        """Raise CopyError unless this log is the beginning of the master's."""
        store = self.store
        if store.copy.is_empty:
            return
        end = store.log_end
        start_there, end_there = await self.range_of(master)
        if end < start_there:
            raise CopyError(
                f"the log ends at {end}, and at the master {master} it begins at {start_there}",
                hint=_EMPTY_HINT,
            )
        newest = await off_loop(store.newest_record, min(end, end_there))
        if newest is not None and newest[0] >= start_there:
            offset, record = newest
            if not await self._is_same(master, offset, record):
                differs = await self._first_difference(master, start_there, offset)
                raise CopyError(
                    f"the log differs from that of the master {master} from {differs} on, and has "
                    f"{end - differs} bytes there",
                    hint=_LONGER_HINT,
                )
        if end > end_there:
            raise CopyError(
                f"the log ends at {end}, and at the master {master} at {end_there}",
                hint=_LONGER_HINT,
            )

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
