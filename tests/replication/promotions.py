"""Promotions in a cluster: asks servers what they are, makes slaves masters, watches who follows.

Servers are asked directly, past all links, as by an operator on their machine. From the moment when
a promotion is recorded until a server of the group is recorded to follow the new master, that server
is `turning`: what it shows is of the old past or of the new one, and only it knows which.

Threads: one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from orbitmq.client.core.consuming.received_message import received_messages
from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.replication import (
    ListQueueEnds,
    PromoteBroker,
    PromoteReply,
    QueueEnds,
    ReadStanding,
    Standing,
)
from orbitmq.transport.rpc_client import RpcClient
from tests.replication.asking import pull
from tests.replication.cluster import Cluster, Server
from tests.replication.history import Fenced, Followed, History, Loss, Promoted, Queue
from tests.waiting import beside

log = logging.getLogger(__name__)

_CLOCK: Final = SystemClock()
_ASK_TIMEOUT_MS: Final = 1_000
_PROMOTE_TIMEOUT_MS: Final = 30_000
_PAUSE_MS: Final = 30
_PROMOTION_S: Final = 60
_FOLLOW_S: Final = 60
_QUEUES_MAX: Final = 10_000
_PULL_COUNT: Final = 32


class Promotions:
    """Promotes slaves, and follows what becomes of the others."""

    def __init__(self, cluster: Cluster, history: History, queues: Sequence[Queue]) -> None:
        self._cluster = cluster
        self._history = history
        self._queues = queues
        self._rpc = RpcClient()
        self._watches: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        """Get ready to ask."""
        await self._rpc.start()

    async def close(self) -> None:
        """Stop watching, and close the connections."""
        for watch in self._watches.values():
            watch.cancel()
        await asyncio.gather(*self._watches.values(), return_exceptions=True)
        await self._rpc.stop()

    async def standing(self, server: Server) -> Standing:
        """What a server says of itself."""
        reply = await self._rpc.call(server.address, ReadStanding(), timeout_ms=_ASK_TIMEOUT_MS)
        return msgspec.json.decode(reply.body, type=Standing)

    # --- promoting ----------------------------------------------------------------------------

    async def promote(self, broker: str, *, force: bool) -> Server:
        """Make the slave with the longest log the master, trying until one is."""
        end_ms = _CLOCK.monotonic_ms() + _PROMOTION_S * 1000
        while True:
            is_last = _CLOCK.monotonic_ms() > end_ms
            try:
                server, epoch = await self._best_slave(broker)
                await self._promote(server, epoch, force=force)
            except OrbitError as error:
                if is_last:
                    raise TimeoutError(f"no slave of {broker} is promoted: {error}") from error
                await _CLOCK.sleep_ms(_PAUSE_MS)
            else:
                return server

    async def _best_slave(self, broker: str) -> tuple[Server, int]:
        """The slave with the longest log, and an epoch larger than all that are known."""
        slaves = self._cluster.slaves_of(broker)
        # All of them: one may have acknowledged messages that the others have not.
        standings = {slave.name: await self.standing(slave) for slave in slaves}
        epochs = [standing.epoch for standing in standings.values()]
        with contextlib.suppress(OrbitError):
            epochs.append((await self.standing(self._cluster.master_of(broker))).epoch)

        def length(slave: Server) -> tuple[int, int]:
            return standings[slave.name].epoch, standings[slave.name].log_end

        return max(slaves, key=length), max(epochs) + 1

    async def _promote(self, server: Server, epoch: int, *, force: bool) -> None:
        deposed = self._cluster.master_of(server.broker)
        log_end, kept = await self._announced(server)
        # Recorded first: from here on the server shows nothing but what it keeps, and then what it
        # takes as the master.
        recorded = self._history.record(
            Promoted(server=server.name, broker=server.broker, deposed=deposed.name)
        )
        other_slaves = [each for each in self._cluster.slaves_of(server.broker) if each != server]
        others = [deposed, *other_slaves]
        turning = {each.name for each in others} - self._cluster.turning
        self._cluster.turning |= turning
        self._cluster.reigns[server.broker] += 1
        # A slave forgets the role of its master when it is restarted.
        asked = PromoteBroker(
            broker_name=server.broker, epoch=Long(epoch), role=self._cluster.role, force=force
        )
        try:
            # What these have acknowledged by now, they have now.
            standings = [await self.standing(each) for each in other_slaves]
            reply = await self._rpc.call(server.address, asked, timeout_ms=_PROMOTE_TIMEOUT_MS)
        except OrbitError:
            self._history.withdraw(recorded)
            self._cluster.turning -= turning
            raise
        kept_end = PromoteReply.decode(reply.fields).log_end
        self._cluster.crown(server)
        for each in others:
            self._watch(each, epoch)
        if kept_end != log_end:
            # It followed to the last, so it keeps more than it had when it was asked.
            kept = await self._kept_below(server, kept_end, kept)
        losses = tuple(Loss(queue, end, None) for queue, end in kept.items())
        is_longest = all(each.log_end <= kept_end and each.epoch < epoch for each in standings)
        self._history.announce(recorded, losses, is_longest=is_longest)

    async def _announced(self, server: Server) -> tuple[int, dict[Queue, int]]:
        """Where a slave's log ends, and its queues: the rest is lost if it is promoted now."""
        asked = ListQueueEnds(limit=_QUEUES_MAX)
        reply = await self._rpc.call(server.address, asked, timeout_ms=_ASK_TIMEOUT_MS)
        listed = msgspec.json.decode(reply.body, type=QueueEnds)
        assert not listed.has_more
        kept = {
            queue: listed.ends.get(queue.topic, {}).get(queue.queue_id, 0)
            for queue in self._queues
            if queue.broker == server.broker
        }
        return listed.log_end, kept

    async def _kept_below(
        self, server: Server, log_end: int, at_least: dict[Queue, int]
    ) -> dict[Queue, int]:
        """Where queues ended when the log of a server that is master now ended somewhere."""
        end_ms = _CLOCK.monotonic_ms() + _PROMOTION_S * 1000
        while True:
            is_last = _CLOCK.monotonic_ms() > end_ms
            try:
                if (await self.standing(server)).visible >= log_end:
                    return {
                        queue: await self._first_above(server, queue, log_end, end)
                        for queue, end in at_least.items()
                    }
            except OrbitError as error:
                log.debug("asked again server=%s reason=%s", server.name, error)
            if is_last:
                raise TimeoutError(f"{server.name} does not show what it has kept")
            await _CLOCK.sleep_ms(_PAUSE_MS)

    async def _first_above(self, server: Server, queue: Queue, log_end: int, offset: int) -> int:
        """The first offset of a queue, from one on, that is not below an end of the log."""
        while True:
            reply = await pull(self._rpc, server, queue, offset, count=_PULL_COUNT)
            messages = received_messages(reply.body, queue.broker) if not reply.code else []
            for message in messages:
                if message.physical_offset >= log_end:
                    return message.queue_offset
                offset = message.queue_offset + 1
            if not messages:
                return offset

    # --- following ----------------------------------------------------------------------------

    def _watch(self, server: Server, epoch: int) -> None:
        """Record when a server knows of the new master, and when it follows."""
        former = self._watches.pop(server.name, None)
        if former is not None:
            former.cancel()
        self._watches[server.name] = asyncio.create_task(
            self._until_following(server, epoch), name=f"watch on {server.name}"
        )

    async def _until_following(self, server: Server, epoch: int) -> None:
        is_fenced = False
        while True:
            with contextlib.suppress(OrbitError):
                standing = await self.standing(server)
                if not standing.is_master and not is_fenced:
                    is_fenced = True
                    self._history.record(Fenced(server=server.name, broker=server.broker))
                if follows(standing, epoch):
                    self._history.record(Followed(server=server.name, broker=server.broker))
                    self._cluster.turning.discard(server.name)
                    return
            await _CLOCK.sleep_ms(_PAUSE_MS)

    async def all_follow(self, *, timeout_s: float = _FOLLOW_S) -> None:
        """Wait until every server follows the master that its group has now."""
        watches = list(self._watches.values())
        if watches:
            await asyncio.wait(watches, timeout=timeout_s)
        if self._cluster.turning:
            names = ", ".join(sorted(self._cluster.turning))
            reasons = "".join([await self._reason(name) for name in sorted(self._cluster.turning)])
            raise TimeoutError(f"not within {timeout_s:.0f} s: {names} follow{reasons}")

    async def follows_soon(self, server: Server, *, timeout_s: float) -> bool:
        """Wait a while for a server to follow its master; returns whether it does."""
        watch = self._watches.get(server.name)
        if watch is not None:
            await asyncio.wait({watch}, timeout=timeout_s)
        return server.name not in self._cluster.turning

    async def _reason(self, name: str) -> str:
        try:
            return f"\n  {name}: {await self.standing(self._cluster.servers[name])}"
        except OrbitError as error:
            return f"\n  {name}: {error}"

    # --- in the end ---------------------------------------------------------------------------

    async def disagreements(self) -> list[str]:
        """What differs between the servers of each group, when all is quiet."""
        found: list[str] = []
        for master in self._cluster.masters():
            reign = await self.standing(master)
            if not reign.is_master:
                found.append(f"{master.name} was promoted, and is no master: {reign}")
            for slave in self._cluster.slaves_of(master.broker):
                standing = await self.standing(slave)
                if not follows(standing, reign.epoch) or standing.epochs != reign.epochs:
                    found.append(f"{slave.name} does not follow {master.name}: {standing}")
                found += await beside(_difference, master, slave, reign.log_end)
        return found


def follows(standing: Standing, epoch: int) -> bool:
    """Whether a server is a slave that copies a master of an epoch, or of a later one."""
    return not standing.is_master and standing.is_linked and standing.epoch >= epoch


def _difference(master: Server, slave: Server, end: int) -> list[str]:
    """Compare the logs of a master and a slave, byte by byte, up to an end."""
    logs = [each.process.process.folder / "store" / "commitlog" for each in (master, slave)]
    names = {path.name for folder in logs for path in folder.iterdir() if path.name.isdigit()}
    for name in sorted(names):
        length = end - int(name)
        if length <= 0:
            continue
        ours, theirs = ((folder / name).read_bytes()[:length] for folder in logs)
        if ours != theirs:
            at = next(
                at for at, pair in enumerate(zip(ours, theirs, strict=True)) if len({*pair}) > 1
            )
            return [f"the logs of {master.name} and {slave.name} differ from {int(name) + at} on"]
    return []
