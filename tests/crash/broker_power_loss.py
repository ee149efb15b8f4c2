"""A whole broker with timers and transactions that is killed or loses power, again and again.

The broker runs in this process on real sockets, with a clock moved by hand, on a `PowerLossDisk`:
all its files take part, tables of topics and offsets, wheel and timer log included. Power is lost at
a sync to come, during the start, the work or the stop of the broker.

Under ASYNC_FLUSH power loss may undo what was acknowledged after the last flush: a prefix of the log
is left. Then a timer or half may be gone, a recall forgotten, a message delivered that was delivered
before, and a transaction open again that had ended: it is checked again, and ends as its producer
decided.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from orbitmq.clock import ManualClock, SystemClock
from orbitmq.protocol.command import Command
from orbitmq.protocol.requests.sending import RecallMessage, SendReply
from orbitmq.protocol.requests.transactions import CheckTransaction, EndTransaction
from orbitmq.record.decode import decode_record
from orbitmq.record.message_id import decode_message_id
from orbitmq.store.config import FlushMode
from orbitmq.transport.connection import Connection
from orbitmq.transport.rpc_client import RpcClient
from tests.crash.broker_ledger import Ack, Kind, Ledger, Seen
from tests.crash.power_loss import PowerLossDisk
from tests.integration.broker.conftest import WAIT_SECONDS, Peer, Site, running

TOPIC, FILLER = "T", "filler"
COMMIT, ROLL_BACK = 8, 12
DAY_MS = 86_400_000
OPTIONS = {
    # Small files, so that each life fills several.
    "mappedFileSizeCommitLog": str(128 << 10),
    "mappedFileSizeConsumeQueue": "400",
    "mappedFileSizeTimerLog": str(52 * 20 + 16),
    "flushCommitLogTimed": "true",
    # Nothing is flushed by itself under ASYNC_FLUSH.
    "flushIntervalCommitLog": "60000",
    "flushCommitLogThoroughInterval": "3600000",
    "timerFlushIntervalMs": "1000",
    "flushConsumerOffsetInterval": "1000",
    "transactionTimeOut": "500",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "10000",
    # Files are deleted on request only, whatever their age.
    "fileReservedTime": "0",
    "deleteWhen": "",
    "cleanResourceInterval": "86400000",
}


@dataclass
class Life:
    """One run of the broker, and the clients it has."""

    site: Site
    peer: Peer
    ledger: Ledger
    rng: random.Random
    # Handles of timers, and places of halves, that can still be taken back or ended.
    handles: dict[str, str] = field(default_factory=dict)
    halves: dict[str, EndTransaction] = field(default_factory=dict)
    checks: list[EndTransaction] = field(default_factory=list)

    @property
    def clock(self) -> ManualClock:
        return self.site.clock

    def ack(self, kind: Kind, name: str) -> None:
        self.ledger.acks.append(Ack(kind, name, self.site.broker.store.log_end))

    # --- steps --------------------------------------------------------------------------------

    async def step(self) -> None:
        """Do something."""
        weights = {
            self.send_timer: 8,
            self.prepare: 5,
            self.end: 4,
            self.answer: 3,
            self.advance: 6,
            self.recall: 3,
            self.fill: 2,
            self.retain: 1,
        }
        (step,) = self.rng.choices(list(weights), list(weights.values()))
        await step()

    async def send_timer(self) -> None:
        name = f"m{len(self.ledger.due_ms)}"
        ahead_ms = self.rng.choice((1, 300, 999, 1000, 2500, self.rng.randrange(1, 8000)))
        self.ledger.due_ms[name] = self.clock.now_ms() + ahead_ms
        reply = await self.peer.send(
            TOPIC, name.encode(), unique_id=name, TIMER_DELIVER_MS=str(self.ledger.due_ms[name])
        )
        assert reply.code == 0, reply.remark
        self.ack(Kind.TIMER, name)
        handle = SendReply.decode(reply.fields).recall_handle
        if handle is not None:
            self.handles[name] = handle

    async def recall(self) -> None:
        if not self.handles:
            return
        name, handle = self.handles.popitem()
        self.ledger.recalls.add(name)
        reply = await self.peer.ask(RecallMessage(topic=TOPIC, recall_handle=handle))
        if reply.code == 0:
            self.ack(Kind.RECALL, name)
        else:
            self.ledger.recalls.discard(name)

    async def prepare(self) -> None:
        name = f"t{len(self.ledger.begun)}"
        self.ledger.begun.add(name)
        reply = await self.peer.send(
            TOPIC, name.encode(), unique_id=name, system_flag=4, TRAN_MSG="true"
        )
        assert reply.code == 0, reply.remark
        receipt = SendReply.decode(reply.fields)
        self.ack(Kind.HALF, name)
        _, _, physical_offset = decode_message_id(receipt.message_id)
        self.halves[name] = _end_of(name, receipt.queue_offset, physical_offset)

    async def end(self) -> None:
        if not self.halves:
            return
        name, half = self.halves.popitem()
        if name not in self.ledger.commits:
            self.ledger.commits[name] = self.rng.random() < 0.6
        await self._end(name, half)

    async def answer(self) -> None:
        """Answer the oldest check, as the producer has decided."""
        if not self.checks:
            return
        asked = self.checks.pop(0)
        name = asked.transaction_id or ""
        # A producer that does not know of a transaction did not begin it.
        self.ledger.commits.setdefault(name, name in self.ledger.acked(Kind.HALF))
        await self._end(name, asked)

    async def _end(self, name: str, half: EndTransaction) -> None:
        outcome = COMMIT if self.ledger.commits[name] else ROLL_BACK
        reply = await self.peer.ask(_with_outcome(half, outcome))
        if reply.code == 0:
            self.ack(Kind.END, name)

    async def advance(self) -> None:
        await self.clock.advance(self.rng.choice((1, 100, 500, 1000, 1000, 3000)))

    async def fill(self) -> None:
        """Send messages that fill a file of the log."""
        for _ in range(self.rng.randrange(1, 6)):
            await self.peer.send(FILLER, bytes(30_000), unique_id="f")

    async def retain(self) -> None:
        """Delete the files that nobody needs."""
        await self.read()
        await asyncio.to_thread(self.site.broker.store.delete_expired)

    async def read(self) -> None:
        """Read what is new in the queue."""
        while self.ledger.next_offset < self.site.broker.store.end_of(TOPIC, 0):
            for message in await self.peer.read(TOPIC, self.ledger.next_offset):
                self.ledger.see(Seen(message.queue_offset, message.body.decode(), message.store_ms))

    async def finish(self) -> None:
        """Let everything become due, and decide everything."""
        last_ms = max([*self.ledger.due_ms.values(), self.clock.now_ms()]) + 2000
        timers = self.site.broker.parts.timers.timers  # nothing outside shows it yet
        async with asyncio.timeout(WAIT_SECONDS):
            while (
                self.clock.now_ms() < last_ms
                or timers.behind
                or timers.next_due_ms is not None
                or timers.read_ms < self.clock.now_ms() // 1000 * 1000
                or len(self.site.broker.parts.transactions.halves)
            ):
                await self.clock.advance(500)
                while self.checks:
                    await self.answer()
        await asyncio.to_thread(self.site.broker.store.flush)
        await self.read()


def _end_of(name: str, half_offset: int, physical_offset: int) -> EndTransaction:
    return EndTransaction.decode(
        {
            "producerGroup": "producers",
            "tranStateTableOffset": str(half_offset),
            "commitLogOffset": str(physical_offset),
            "commitOrRollback": "0",
            "transactionId": name,
        }
    )


def _with_outcome(half: EndTransaction, outcome: int) -> EndTransaction:
    return EndTransaction.decode(half.encode() | {"commitOrRollback": str(outcome)})


async def _connect(stack: AsyncExitStack, site: Site, ledger: Ledger, rng: random.Random) -> Life:
    checks: list[EndTransaction] = []

    def note(_: Connection, asked: Command) -> None:
        check = CheckTransaction.decode(asked.fields)
        name = decode_record(asked.body).body.decode()
        checks.append(_end_of(name, check.half_offset, check.physical_offset))

    rpc = await stack.enter_async_context(RpcClient(handlers={CheckTransaction.CODE: note}))
    peer = Peer(f"127.0.0.1:{site.broker.port}", rpc)
    reply = await peer.heartbeat("p1", group="", produces="producers")
    assert reply.code == 0, reply.remark
    return Life(site, peer, ledger, rng, checks=checks)


# --- lives ------------------------------------------------------------------------------------


@dataclass
class Loss:
    """What was acknowledged, seen and flushed when power was lost."""

    ledger: Ledger
    # What was on disk before the broker started.
    flushed: int
    site: Site | None = None
    acks: int | None = None
    seen: int = 0

    def note(self) -> None:
        """Take note; later acknowledgements do not count."""
        self.acks, self.seen = len(self.ledger.acks), len(self.ledger.seen)
        if self.site is not None:
            self.flushed = self.site.broker.store.flushed

    def apply(self, mode: FlushMode) -> None:
        """Forget what came after, and what power loss may undo."""
        assert self.acks is not None
        del self.ledger.acks[self.acks :]
        del self.ledger.seen[self.seen :]
        if mode is FlushMode.ASYNC:
            self.ledger.acks[:] = [a for a in self.ledger.acks if a.log_end <= self.flushed]


class Crashes:
    """A broker that crashes, one life after the other, each in a folder of its own."""

    def __init__(self, folder: Path, seed: int, mode: FlushMode) -> None:
        self._folder = folder
        self._mode = mode
        self._rng = random.Random(f"broker {seed} {mode}")
        # Later than the times of the files, which retention compares with it.
        self._clock = ManualClock(SystemClock().now_ms() // 1000 * 1000 + DAY_MS)
        self._number = 0
        self._root.mkdir(parents=True)
        self._disk = PowerLossDisk(self._root, self._rng)
        # So much of the log is on disk, whatever happens.
        self._flushed = 0
        self.ledger = Ledger()
        self.outcomes: Counter[str] = Counter()

    @property
    def _root(self) -> Path:
        return self._folder / str(self._number)

    @property
    def _target(self) -> Path:
        return self._folder / str(self._number + 1)

    async def run(self, rounds: int) -> None:
        """Crash so many times, then let everything end."""
        try:
            for _ in range(rounds):
                await self._crash()
            with self._disk.installed():
                async with AsyncExitStack() as stack:
                    await (await self._start(stack)).finish()
        finally:
            self._disk.close()

    async def _crash(self) -> None:
        with self._disk.installed():
            if self._rng.random() < 0.3:
                following = await self._kill()
            else:
                where = await self._lose_power()
                self.outcomes[f"power lost: {where}"] += 1
                following = PowerLossDisk(self._target, self._rng)
        self._disk.close()
        self._disk = following
        shutil.rmtree(self._root)
        self._number += 1
        await self._clock.advance(self._rng.choice((0, 1, 700, 5000)))

    async def _start(self, stack: AsyncExitStack) -> Life:
        """Start the broker, and compare its queue with what was seen before."""
        site = await stack.enter_async_context(
            running(self._root, self._clock, flushDiskType=self._mode.value, **OPTIONS)
        )
        life = await _connect(stack, site, self.ledger, self._rng)
        for topic in (TOPIC, FILLER):
            await life.peer.make_topic(topic, read=1, write=1)
        before = list(self.ledger.seen)
        start = site.broker.store.start_of(TOPIC, 0)
        self.ledger.seen[:] = [message for message in before if message.queue_offset < start]
        await life.read()
        if self._mode is FlushMode.SYNC:
            assert self.ledger.seen[: len(before)] == before, "what was seen has changed"
        return life

    async def _lose_power(self) -> str:
        """Run the broker, lose power somewhere; returns where."""
        rng, disk = self._rng, self._disk
        loss = Loss(self.ledger, self._flushed)
        syncs = rng.choice((rng.randrange(1, 30), rng.randrange(1, 150)))
        disk.lose_power_at(syncs, self._target, loss.note)
        async with AsyncExitStack() as stack:
            life = await self._start(stack)
            where = "start"
            loss.site = life.site
            for _ in range(rng.randrange(5, 60)):
                if not disk.is_armed:
                    break
                await life.step()
                where = "work"
                if rng.random() < 0.2:
                    await life.read()
                if rng.random() < 0.1:
                    disk.observe()
            if disk.is_armed:
                where = "stop"
                if rng.random() < 0.5:
                    disk.lose_power_at(1, self._target, loss.note)
        if disk.is_armed:
            disk.lose_power_at(10**9, self._target, lambda: None)
            loss.note()
            disk.capture(self._target)
            where = "stopped"
        loss.apply(self._mode)
        self._flushed = loss.flushed
        return where

    async def _kill(self) -> PowerLossDisk:
        """Run the broker, and copy what a kill would leave, unsynced bytes included."""
        self.outcomes["killed"] += 1
        async with AsyncExitStack() as stack:
            life = await self._start(stack)
            for _ in range(self._rng.randrange(40)):
                await life.step()
            await life.read()
            self._flushed = life.site.broker.store.flushed
            return self._disk.kill(self._target)


async def run_broker_chain(
    folder: Path, seed: int, mode: FlushMode, *, rounds: int
) -> Counter[str]:
    """Crash a broker `rounds` times, then let everything end and compare."""
    crashes = Crashes(folder, seed, mode)
    await crashes.run(rounds)
    return crashes.outcomes + crashes.ledger.check()
