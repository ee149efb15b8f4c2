"""Exactly-once writes at two broker groups, through the promotion of slaves."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.exactly_once.moving import CHUNK
from orbitmq.broker.exactly_once.query_states import ALL_AFTER_START_MS, UNDECIDED_MS
from orbitmq.client.aio import Admin
from orbitmq.client.aio.sending.staged_writer import StagedWriter, new_write_id
from orbitmq.clock import SystemClock
from orbitmq.errors import BatchConflictError
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.requests.staged_writes import (
    BatchDecision,
    BatchStatus,
    DecideWrites,
    Part,
    SourceRange,
)
from orbitmq.protocol.requests.topics import DeleteTopic
from orbitmq.record.batch import BatchedMessage, encode_batch
from orbitmq.record.decode import decode_record
from tests.integration.replication.group import Group
from tests.waiting import until

# A decides for all queries: its name sorts first.
A, B = "group-a", "group-b"
SYNC = {"brokerRole": "SYNC_MASTER"}
ASYNC = {"brokerRole": "ASYNC_MASTER"}
BOTH = {A: ("T",), B: ("T",)}
ONLY_A, ONLY_B = {A: ("T",)}, {B: ("T",)}
# More rows in T than are moved at a time, so that they are moved before those in U.
B_IN_TWO_STEPS = {B: ("T", "U")}
ROWS = 3


class AheadClock(SystemClock):
    """The machine's time, some hours later."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@dataclass(frozen=True)
class Staged:
    """A batch that is staged, and its rows by group."""

    decision: BatchDecision
    rows: dict[str, Counter[bytes]]


@dataclass
class Site:
    """Two groups, a writer, and the rows that it has committed."""

    groups: Mapping[str, Group]
    writer: StagedWriter
    admin: Admin
    committed: dict[str, Counter[bytes]] = field(
        default_factory=lambda: {A: Counter(), B: Counter()}
    )

    async def stage(
        self, batch: int, at: Mapping[str, tuple[str, ...]] = BOTH, *, query: str = "q"
    ) -> Staged:
        """Stage rows of a batch, by group for some topics."""
        parts: dict[str, Part] = {}
        rows: dict[str, Counter[bytes]] = {}
        for name, topics in at.items():
            write, places, bodies = new_write_id(), [], list[bytes]()
            for topic in topics:
                count = ROWS if topic == topics[-1] else CHUNK
                more = [f"{batch} {topic} {row}".encode() for row in range(count)]
                places.append(
                    await self.writer.stage(
                        MessageQueue(topic=topic, broker_name=name, queue_id=0),
                        encode_batch(BatchedMessage(0, body, b"") for body in more),
                        write_id=write,
                        first_sequence=len(bodies),
                    )
                )
                bodies += more
            parts[name] = Part(
                writes={write: len(bodies)}, start=places[0].start, end=places[-1].end
            )
            rows[name] = Counter(bodies)
        source = SourceRange(start=str(batch - 1), end=str(batch))
        decision = BatchDecision(query=query, batch=batch, parts=parts, source=source, target="T")
        return Staged(decision, rows)

    async def commit(self, staged: Staged) -> None:
        """Commit a batch; from then on its rows must be found."""
        status = await self.writer.commit(staged.decision)
        assert status.complete
        for name, rows in staged.rows.items():
            self.committed[name].update(rows)

    async def write(self, batch: int, at: Mapping[str, tuple[str, ...]] = BOTH) -> None:
        """Stage and commit a batch."""
        await self.commit(await self.stage(batch, at))

    async def replace(self, name: str) -> None:
        """Kill the master of a group, and promote its slave."""
        group = self.groups[name]
        await group.kill(0)
        if 1 not in group.brokers:
            await group.start(1)
        await self.promote(name)

    async def promote(self, name: str) -> None:
        """Promote the slave of a group whose master is gone."""
        await self.groups[name].until_missed(0)
        # It does not wait for slaves.
        await self.groups[name].promote(1, role="ASYNC_MASTER")

    async def leave_behind(self, name: str) -> None:
        """Stop the slave of a group once it has all; it lacks what comes now."""
        await self.groups[name].until_copied()
        await self.groups[name].stop(1)

    async def until_all_once(self, name: str, broker_id: int, *topics: str) -> None:
        """Wait until a broker shows what was committed, each row once."""

        def shown() -> Counter[bytes]:
            store = self.groups[name].brokers[broker_id].store
            return Counter(
                decode_record(record).body
                for topic in topics or ("T",)
                for record in store.read_bulk(topic, 0, 0, 10_000, 1 << 22).records
            )

        await until(lambda: shown().total() >= self.committed[name].total())
        assert shown() == self.committed[name]


@asynccontextmanager
async def site_at(
    folder: Path, options: Mapping[str, str], *, clock: AheadClock | None = None
) -> AsyncIterator[Site]:
    async with (
        Group(folder / A, name=A, clock=clock) as first,
        Group(folder / B, name=B, beside=first, clock=clock) as second,
        # It learns of new masters by its failures alone.
        StagedWriter(namesrv=first.namesrv, route_interval_ms=86_400_000) as writer,
        Admin(namesrv=first.namesrv) as admin,
    ):
        await asyncio.gather(_start(first, options), _start(second, options))
        yield Site({A: first, B: second}, writer, admin)
        await asyncio.gather(_stop(first), _stop(second))


async def _start(group: Group, options: Mapping[str, str]) -> None:
    """Start a master and its slave; if it waits for slaves, it does so when this returns."""
    master, _ = await group.pair(options=options)
    await group.create_topic()
    gate = master.replication.gate
    if gate is not None:
        await until(lambda: not gate.is_short)


async def _stop(group: Group) -> None:
    """Stop brokers, slaves first if nothing waits for them: what they ask for is answered late."""
    brokers = group.brokers
    waits = any(broker.replication.gate is not None for broker in brokers.values())
    for number in sorted(brokers, key=lambda number: brokers[number].replication.is_slave is waits):
        await group.stop(number)


# --- nothing is lost ------------------------------------------------------------------------------


@pytest.mark.parametrize("dying", [A, B])
async def test_rows_that_were_staged_are_committed_by_the_promoted_slave(
    tmp_path: Path, dying: str
) -> None:
    async with site_at(tmp_path, SYNC) as site:
        await site.write(0)
        staged = await site.stage(1)

        await site.replace(dying)
        await site.commit(staged)
        await site.write(2)

        await site.until_all_once(dying, 1)
        await site.until_all_once(A if dying == B else B, 0)
        # The master that died returns as a slave.
        await site.groups[dying].start(0)
        await site.groups[dying].until_copied(0, master=1)
        await site.until_all_once(dying, 0)


async def test_a_batch_that_was_decided_is_moved_by_promoted_slaves_while_its_driver_waits(
    tmp_path: Path,
) -> None:
    async with site_at(tmp_path, SYNC) as site:
        await site.write(0)
        staged = await site.stage(1)
        await site.groups[B].kill(0)
        committing = asyncio.create_task(site.commit(staged))
        # Decided, and moved at A.
        shown = site.groups[A].brokers[1].store
        await until(lambda: shown.end_of("T", 0) == 2 * ROWS)

        await site.replace(A)
        await site.promote(B)
        await committing

        for name in (A, B):
            await site.until_all_once(name, 1)
        await site.write(2)
        for name in (A, B):
            await site.until_all_once(name, 1)


async def test_a_move_that_was_half_done_is_completed_by_the_promoted_slave(
    tmp_path: Path,
) -> None:
    async with site_at(tmp_path, SYNC) as site, half_moved(site) as committing:
        await site.replace(B)
        await site.groups[B].create_topic("U", broker_id=1)
        await committing

        await site.until_all_once(B, 1, "T", "U")


async def test_rows_that_the_promoted_slave_lacks_are_moved_again_if_it_knows_of_the_move(
    tmp_path: Path,
) -> None:
    async with site_at(tmp_path, ASYNC) as site, half_moved(site) as committing:
        await site.leave_behind(B)
        await site.groups[B].create_topic("U")
        await committing

        await site.replace(B)
        await site.groups[B].create_topic("U", broker_id=1)
        # Also if the next batch has no rows there.
        await site.write(1, ONLY_A)

        await site.until_all_once(B, 1, "T", "U")


@asynccontextmanager
async def half_moved(site: Site) -> AsyncIterator[asyncio.Task[None]]:
    """The commit of a batch of which B has moved the rows in T, and not those in U."""
    group = site.groups[B]
    await group.create_topic("U")
    staged = await site.stage(0, B_IN_TWO_STEPS)
    await group.rpc.call(group.address(), DeleteTopic(topic="U"))
    async with asyncio.TaskGroup() as tasks:
        committing = tasks.create_task(site.commit(staged))
        store = group.brokers[0].store
        await until(lambda: store.end_of("T", 0) == CHUNK)
        await group.until_copied()
        yield committing


async def test_staged_rows_outlast_a_late_decision_on_a_promoted_broker(tmp_path: Path) -> None:
    clock = AheadClock()
    options = {**ASYNC, "fileReservedTime": "1"}
    async with site_at(tmp_path, options, clock=clock) as site:
        group = site.groups[B]
        staged = await site.stage(0, ONLY_B)
        for _ in range(3 * 16):
            await group.send(bytes(1 << 16), topic="fill")
        await group.until_copied()
        # Slaves copy the tables every three seconds: without its topic the batch would wait for it.
        await until(lambda: group.brokers[1].topics.get("T") is not None)
        clock.ahead_ms = UNDECIDED_MS + 1

        await site.replace(B)
        store = group.brokers[1].store
        kept = await asyncio.to_thread(store.delete_expired)
        await site.commit(staged)

        assert kept == ()
        await site.until_all_once(B, 1)
        clock.ahead_ms += ALL_AFTER_START_MS
        assert await asyncio.to_thread(store.delete_expired)


# --- a slave that lagged is promoted --------------------------------------------------------------


async def test_the_next_batch_fails_if_the_coordinator_lost_a_batch(tmp_path: Path) -> None:
    async with site_at(tmp_path, ASYNC) as site:
        await site.write(0)
        await site.leave_behind(A)
        lost = await site.stage(1)
        await site.writer.commit(lost.decision)
        site.committed[B] += lost.rows[B]

        await site.replace(A)
        with pytest.raises(BatchConflictError, match="knows nothing of batch 1") as failed:
            await site.write(2)

        assert "orbitmq query forget q --force" in failed.value.args[0]
        # What the hint says: write what is missing, and go on.
        repair = await site.stage(1, ONLY_A, query="batch/repair")
        await site.commit(Staged(repair.decision, repair.rows))
        await site.admin.queries.forget("q", force=True)
        await site.write(2)
        await site.write(3)
        await site.until_all_once(A, 1)
        await site.until_all_once(B, 0)


async def test_a_repeated_batch_fails_if_the_coordinator_lost_its_decision(tmp_path: Path) -> None:
    async with site_at(tmp_path, ASYNC) as site:
        await site.write(0)
        await site.leave_behind(A)
        await site.write(1, ONLY_B)

        await site.replace(A)
        with pytest.raises(BatchConflictError, match="has moved other rows for batch 1") as failed:
            await site.write(1, ONLY_B)

        assert "orbitmq query forget q --force" in failed.value.args[0]
        await site.until_all_once(B, 0)
        await site.admin.queries.forget("q", force=True)
        # The driver knows now that the rows are there, and goes on after them.
        await site.write(2)
        await site.until_all_once(B, 0)


async def test_a_batch_fails_if_its_staged_rows_were_lost(tmp_path: Path) -> None:
    async with site_at(tmp_path, ASYNC) as site:
        await site.write(0)
        await site.leave_behind(B)
        staged = await site.stage(1, ONLY_B)
        await site.replace(B)
        problem = await problem_of(site, staged.decision)

        assert f"staged {ROWS} rows, but 0 were found" in problem
        assert "orbitmq query forget q --force" in problem
        await site.admin.queries.forget("q", force=True)
        await site.write(1, ONLY_B)
        await site.write(2)
        await site.until_all_once(B, 1)


async def problem_of(site: Site, decision: BatchDecision) -> str:
    """Why a batch is not complete, as its driver will be told when it waits no longer."""
    while True:
        reply = await site.groups[A].rpc.call(
            site.groups[A].address(), DecideWrites(wait_ms=100), msgspec.json.encode(decision)
        )
        status = msgspec.json.decode(reply.body, type=BatchStatus)
        if status.problems:
            return "; ".join(status.problems.values())


async def test_the_next_batch_fails_if_rows_that_were_moved_are_lost(tmp_path: Path) -> None:
    async with site_at(tmp_path, ASYNC) as site:
        await site.write(0)
        await site.leave_behind(B)
        lost = await site.stage(1)
        await site.writer.commit(lost.decision)
        site.committed[A] += lost.rows[A]

        await site.replace(B)
        # Also if the next batch has no rows there: none is moved before.
        with pytest.raises(
            BatchConflictError, match="newest that is known here is batch 0"
        ) as failed:
            await site.write(2, ONLY_A)
        assert "orbitmq query forget q --force" in failed.value.args[0]
        with pytest.raises(BatchConflictError, match="the rows of batch 1 were moved"):
            await site.write(2)

        repair = await site.stage(1, ONLY_B, query="batch/repair")
        await site.commit(repair)
        await site.admin.queries.forget("q", force=True)
        await site.write(2)
        await site.until_all_once(A, 0)
        await site.until_all_once(B, 1)
