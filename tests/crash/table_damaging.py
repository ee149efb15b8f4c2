"""Damages the tables of a broker and their copies; a test does it to a sample, a soak run to all."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from orbitmq import java_json
from orbitmq.clock import ManualClock
from orbitmq.errors import OrbitError
from orbitmq.model.groups import GroupConfig
from orbitmq.model.names import SCHEDULE_TOPIC
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.groups import UpdateGroup
from orbitmq.protocol.requests.offsets import CommitOffset
from orbitmq.record.decode import decode_records
from orbitmq.store.config import FlushMode
from tests.crash.damaging import KINDS, flipped, logged_warnings
from tests.integration.broker.conftest import Peer, Site, crash_image, running

_KINDS = KINDS | {"bit flipped": flipped()}
TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
STATES = ("stopped", "killed")
# A day: what is delayed is due, and topics and groups are older than any start.
_LATER_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class TableDamage:
    """One case: what is done to the table and to its copy; empty for nothing."""

    state: str
    table: str
    kind: str
    copy_kind: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What clients and operators see of a broker."""

    # Bodies by topic and queue id.
    messages: dict[tuple[str, int], tuple[bytes, ...]]
    # Queues, permission and order of each topic.
    topics: dict[str, object]
    groups: dict[str, object]
    offsets: dict[str, dict[int, int]]

    def lacks(self, expected: Seen) -> list[str]:
        """Messages that are not there; what came twice counts once."""
        return [
            f"{topic}/{queue_id}: {sorted(lost)}"
            for (topic, queue_id), bodies in expected.messages.items()
            if (lost := set(bodies) - set(self.messages.get((topic, queue_id), ())))
        ]


class DamagedTables:
    """A broker's store as it was stopped and as it was killed, to be damaged in copies."""

    def __init__(self, folder: Path, seed: int, mode: FlushMode = FlushMode.SYNC) -> None:
        self._folder = folder
        self._rng = random.Random(f"{seed} {mode} tables")
        self._options = {"flushDiskType": str(mode)}
        self._expected: dict[str, Seen] = {}

    async def write(self) -> None:
        """Make the store, each table with a copy that is a change older."""
        async with running(self._folder / "stopped", ManualClock(), **self._options) as site:
            await _use(site)
            crash_image(site, self._folder / "killed")
        for state in STATES:
            config = self._folder / state / "store" / "config"
            for table in TABLES:
                assert (config / f"{table}.bak").read_bytes() != (config / table).read_bytes()
        for state in STATES:
            shutil.copytree(self._folder / state, self._folder / "copy")
            try:
                self._expected[state] = await self._serve()
            finally:
                shutil.rmtree(self._folder / "copy")

    def cases(self) -> list[TableDamage]:
        """Every kind of damage to each table, to its copy and to both, in both states."""
        return [
            TableDamage(state, table, kind, copy_kind)
            for state in STATES
            for table in TABLES
            for kind in ("", *_KINDS)
            for copy_kind in ("", "deleted", "garbage", kind)
            if kind or copy_kind
        ]

    async def run(self, damage: TableDamage) -> str:
        """Damage a copy of the store and start a broker on it; returns what happened."""
        shutil.copytree(self._folder / damage.state, self._folder / "copy")
        try:
            table = self._folder / "copy" / "store" / "config" / damage.table
            for path, kind in (
                (table, damage.kind),
                (table.with_name(f"{table.name}.bak"), damage.copy_kind),
            ):
                if kind:
                    _KINDS[kind](path, self._rng)
            return await self._outcome(damage)
        except AssertionError as error:
            raise AssertionError(f"{damage}: {error}") from error
        finally:
            shutil.rmtree(self._folder / "copy")

    async def _outcome(self, damage: TableDamage) -> str:
        expected = self._expected[damage.state]
        with logged_warnings() as logged:
            try:
                seen = await self._serve()
            except OrbitError as error:
                return _refused(damage, error)
        named = [line for line in logged.lines if damage.table in line]
        assert not (lost := seen.lacks(expected)), f"lost {lost}; logged {logged.lines}"
        if (seen.topics, seen.groups, seen.offsets) != (
            expected.topics,
            expected.groups,
            expected.offsets,
        ):
            assert named, f"changed in silence: {seen}, not {expected}"
            return "served all messages, change of settings logged"
        if damage.kind and not named:
            return "served all, unchanged"
        return "served all, logged" if named else "served all, copy not needed"

    async def _serve(self) -> Seen:
        clock = ManualClock(ManualClock().now_ms() + _LATER_MS)
        async with running(self._folder / "copy", clock, **self._options) as site:
            await site.advance_until(lambda: _all_is_delivered(site))
            peer = await site.connect()
            return Seen(
                messages={
                    (topic, queue_id): await _bodies(peer, topic, queue_id)
                    for topic, queues in (("orders", 3), ("newest", 2), ("last", 1))
                    for queue_id in range(queues)
                },
                topics={
                    name: (topic.read_queues, topic.write_queues, topic.permission, topic.order)
                    for name in ("orders", "newest", "last", "%RETRY%old", "%RETRY%new")
                    if (topic := site.broker.topics.get(name)) is not None
                },
                groups={
                    name: group.retries_max
                    for name in ("old", "new")
                    if (group := site.broker.groups.get(name)) is not None
                },
                offsets=site.broker.offsets.table(),
            )


def _refused(damage: TableDamage, error: OrbitError) -> str:
    assert damage.table in str(error), f"{error} names no file"
    assert error.hint, f"{error} has no hint"
    assert damage.kind, f"refused for its copy: {error}"
    return "refused, by name"


async def _use(site: Site) -> None:
    """Fill every table, in steps, so that copies are older than what they are copies of."""
    for topic, queues, group in (("orders", 3, "old"), ("newest", 2, "new")):
        peer = await site.connect()
        await peer.make_topic(topic, read=queues, write=queues)
        config = java_json.encode(GroupConfig(name=group, retries_max=5))
        assert (await peer.ask(UpdateGroup(), config)).code == 0
        for queue_id in range(queues):
            for number in range(2):
                sent = await peer.send(topic, b"%d" % number, queue_id=queue_id)
                assert sent.code == 0, sent.remark
        await peer.heartbeat(f"client-{group}", group=group, topic=topic)
        await _until_there(site, f"%RETRY%{group}")
        commit = CommitOffset(consumer_group=group, topic=topic, queue_id=0, commit_offset=Long(1))
        assert (await peer.ask(commit)).code == 0
        await site.broker.offsets.save()
    peer = await site.connect()
    for number in range(1, 4):
        assert (await peer.send("orders", b"late %d" % number, queue_id=1, DELAY="1")).code == 0
        if number < 3:
            await site.stored("orders", 1, 2 + number)
            await site.broker.parts.delay.save()
    await peer.make_topic("last", read=1, write=1)
    assert (await peer.send("last", b"0")).code == 0


async def _until_there(site: Site, topic: str) -> None:
    await site.advance_until(lambda: site.broker.topics.get(topic) is not None)


def _all_is_delivered(site: Site) -> bool:
    store = site.broker.store
    is_moved = site.broker.parts.delay.offsets[1] == store.end_of(SCHEDULE_TOPIC, 0)
    return is_moved and store.visible == store.log_end


async def _bodies(peer: Peer, topic: str, queue_id: int) -> tuple[bytes, ...]:
    reply = await peer.pull(topic, queue_id=queue_id)
    if reply.code != ResponseCode.SUCCESS:
        return ()
    return tuple(message.stored_body for message in decode_records(reply.body))


def run_table_damage(folder: Path, seed: int, mode: FlushMode, *, rounds: int) -> Counter[str]:
    """Damage tables at random; counts what happened."""
    return asyncio.run(_run(folder, seed, mode, rounds))


async def _run(folder: Path, seed: int, mode: FlushMode, rounds: int) -> Counter[str]:
    tables = DamagedTables(folder, seed, mode)
    await tables.write()
    cases = tables.cases()
    chosen = random.Random(seed).sample(cases, min(rounds, len(cases)))
    return Counter([await tables.run(damage) for damage in chosen])
