"""Random histories of topics, archives and retention: nothing goes early, nothing is kept late."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from orbitmq.broker.archives.archive_gate import ArchiveGate
from orbitmq.broker.archives.archive_table import ArchiveTable
from orbitmq.clock import ManualClock
from orbitmq.protocol.requests.archives import MarkMove
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore
from orbitmq.store.retention import DiskUse, RetentionConfig
from tests.unit.store.stores import LOG_FILE_BYTES, open_store

TOPICS = ("orders", "bills", "free")
ARCHIVES = {"lake": "orders", "second": "orders", "bills": "bills"}
STEPS = 120
# Every file may go at any time, unless it is needed.
_PRESSED = RetentionConfig(
    delete_when="", free_bytes_min=1 << 60, files_max=100, interval_ms=86_400_000
)


def roomy(_: Path) -> DiskUse:
    return DiskUse(device=1, used_bytes=1, free_bytes=1 << 50)


@dataclass
class History:
    """A store with archives, beside a list of what was stored."""

    folder: Path
    rng: random.Random
    clock: ManualClock = field(default_factory=ManualClock)
    # By topic and queue, where each message begins; a list per life of the topic.
    stored: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    marks: dict[tuple[str, int], int] = field(default_factory=dict)
    lives: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ARCHIVES, 1))

    async def begin(self) -> None:
        """Open the store and the table, as a start does."""
        self.store: MessageStore = open_store(
            self.folder, retention=_PRESSED, clock=self.clock, measure=roomy
        )
        self.table = ArchiveTable(self.folder / "config", self.folder / "orbitmq", clock=self.clock)
        await self.table.load()
        self.gate = ArchiveGate(self.table, self.store)
        self.store.gate_retention(self.gate)

    async def run(self) -> None:
        """Do random steps, and check after each pass of retention."""
        await self.begin()
        for name, topic in ARCHIVES.items():
            await self.table.open(
                name, topic=topic, gates=True, target="", life_from=0, starts=dict
            )
        steps = (self.put, self.put, self.put, self.advance, self.retain, self.delete, self.restart)
        weights = (10, 10, 10, 8, 6, 1, 1)
        for _ in range(STEPS):
            (step,) = self.rng.choices(steps, weights)
            await step()
        await self.retain()
        self.store.close()

    async def put(self) -> None:
        """Store a batch of messages in a queue."""
        topic, queue_id = self.rng.choice(TOPICS), self.rng.randrange(3)
        drafts = [
            Draft(topic=topic, queue_id=queue_id, body=bytes(self.rng.randrange(1, 9000)))
            for _ in range(self.rng.randrange(1, 5))
        ]
        for receipt in self.store.put_batch(drafts):
            self.stored.setdefault((topic, queue_id), []).append(receipt.physical_offset)

    async def advance(self) -> None:
        """Move a mark of an archive, sometimes to the end."""
        name, topic = self.rng.choice(list(ARCHIVES.items()))
        queue_id = self.rng.randrange(3)
        end = len(self.stored.get((topic, queue_id), ()))
        before = self.marks.get((name, queue_id), 0)
        mark = self.rng.choice((end, self.rng.randint(before, end)))
        move = MarkMove(queue_id, before, mark)
        ends = {queue_id: self.store.end_of(topic, queue_id)}
        assert ends[queue_id] == end
        await self.table.advance(name, self.lives[name], [move], ends)
        self.marks[name, queue_id] = mark

    async def delete(self) -> None:
        """Delete a topic, as its request does; its next message creates it again."""
        topic = self.rng.choice(TOPICS)
        await self.table.end_life(topic)
        self.store.delete_topic(topic)
        await self.table.note_deletions(self.store.deleted_topics())
        for queue_id in range(3):
            self.stored.pop((topic, queue_id), None)
            for name in (name for name, of in ARCHIVES.items() if of == topic):
                self.marks.pop((name, queue_id), None)
        for name, of in ARCHIVES.items():
            self.lives[name] += of == topic

    async def restart(self) -> None:
        """Close the store, and start on it as a master does."""
        self.store.close()
        await self.begin()
        await self.table.end_deleted(self.store.deleted_topics())
        ends = {(each.topic, each.queue_id): int(each.end) for each in self.store.queues()}
        await self.table.lower_to_ends(ends)

    async def retain(self) -> None:
        """Delete all that may go, and compare with what had to stay."""
        self.store.flush()
        self.store._upkeep.round()
        needed = self.needed_from()

        self.store.delete_expired()

        newest = (self.store.log_end - 1) // LOG_FILE_BYTES * LOG_FILE_BYTES
        if self.store.log_end:
            assert self.store.log_start == min(needed // LOG_FILE_BYTES * LOG_FILE_BYTES, newest)
        figures = self.gate.figures()
        for name, topic in ARCHIVES.items():
            assert figures[name].missed_messages == 0
            assert figures[name].unarchived_messages == sum(
                len(self.stored.get((topic, queue_id), ())) - self.marks.get((name, queue_id), 0)
                for queue_id in range(3)
            )

    def needed_from(self) -> int:
        """Where the oldest message begins that an archive lacks; the end if there is none."""
        lacking = [
            self.stored[topic, queue_id][mark]
            for name, topic in ARCHIVES.items()
            for queue_id in range(3)
            if (mark := self.marks.get((name, queue_id), 0))
            < len(self.stored.get((topic, queue_id), ()))
        ]
        return min(lacking, default=self.store.log_end)


@pytest.mark.parametrize("seed", range(12))
async def test_retention_deletes_exactly_what_no_archive_lacks(tmp_path: Path, seed: int) -> None:
    await History(tmp_path, random.Random(seed)).run()
