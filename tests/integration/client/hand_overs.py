"""Members of an ordered group join, leave, lose their connections and are killed, at random.

    python -m tests.integration.client.hand_overs --seconds 600 --page docs/soak/ordered-members.md

Numbered messages keep coming to every queue. In the end each message was received, none before the
one it follows, no two members worked on one queue at the same time, and nothing came twice unless a
member had been killed. Members that are killed are processes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import itertools
import json
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from orbitmq import client as blocking
from orbitmq.client import Message
from orbitmq.client.aio import Producer, PushConsumer
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.version import __version__
from tests.integration.client.chaos_site import CLOCK, ChaosSite, chaos_site
from tests.integration.conftest import PATIENCE_MS
from tests.interop.processes import ChildProcess
from tests.waiting import beside, until_reached

QUEUES = 8
MEMBERS_MAX = 4
SEND_PAUSE_MS = 10
# The most time between two events.
EVENT_PAUSE_MS = 300
# What a listener takes at most.
WORK_MS = 4
# Longer than a lock of a killed member lasts.
DRAIN_TIMEOUT_S = 120
FAULTS_SHOWN_MAX = 5


class Call(NamedTuple):
    """A call of a listener; without an end if its member was killed."""

    queue_id: int
    offset: int
    member: str
    began_ms: float
    ended_ms: float


@dataclass
class Ledger:
    """What was sent, and all calls of listeners, from any thread."""

    sent: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(QUEUES), 0))
    calls: list[Call] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)

    def missing(self) -> int:
        """How many messages no listener has finished."""
        seen = {(call.queue_id, call.offset) for call in list(self.calls)}
        return sum(self.sent.values()) - len(seen)

    def faults(self) -> list[str]:
        """What is wrong, if anything."""
        faults = [f"{self.missing()} messages are missing"] if self.missing() else []
        for queue_id in range(QUEUES):
            calls = [call for call in self.calls if call.queue_id == queue_id]
            calls.sort(key=lambda call: call.began_ms)
            newest = -1
            for call in calls:
                if call.offset > newest + 1:
                    faults.append(f"queue {queue_id}: {call} came after {newest}")
                elif call.offset <= newest and not self.events["killed"]:
                    faults.append(f"queue {queue_id}: {call} came twice")
                newest = max(newest, call.offset)
            faults += [
                f"queue {queue_id}: {before} and {after} at the same time"
                for before, after in itertools.pairwise(calls)
                if before.member != after.member and after.began_ms < before.ended_ms
            ]
        return faults

    @property
    def repeats(self) -> int:
        """How many calls were for a message that came before."""
        return len(self.calls) - len({(call.queue_id, call.offset) for call in self.calls})


class OwnMember:
    """A consumer in this process, with a plain or an async listener."""

    def __init__(
        self, name: str, ledger: Ledger, group: str, topic: str, *, plain: bool, **options: Any
    ) -> None:
        self.name = name
        self._ledger = ledger
        self._seed = random.Random(name)
        self._consumer = PushConsumer(
            group,
            on_message=self._plain if plain else self._awaited,
            ordered=True,
            **_options(**options),
        )
        self._consumer.subscribe(topic)

    async def join(self) -> None:
        await self._consumer.start()

    async def leave(self) -> None:
        await self._consumer.stop()

    def _plain(self, message: ReceivedMessage) -> None:
        began_ms = CLOCK.monotonic_ms()
        threading.Event().wait(self._seed.uniform(0, WORK_MS) / 1000)
        self._add(message, began_ms)

    async def _awaited(self, message: ReceivedMessage) -> None:
        began_ms = CLOCK.monotonic_ms()
        await CLOCK.sleep_ms(self._seed.uniform(0, WORK_MS))
        self._add(message, began_ms)

    def _add(self, message: ReceivedMessage, began_ms: float) -> None:
        call = Call(
            message.queue_id, message.queue_offset, self.name, began_ms, CLOCK.monotonic_ms()
        )
        self._ledger.calls.append(call)


class KilledMember:
    """A blocking consumer in a process of its own, which is killed instead of stopped."""

    def __init__(
        self, name: str, ledger: Ledger, group: str, topic: str, namesrv: str, folder: Path
    ) -> None:
        self.name = name
        self._ledger = ledger
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", __name__ if __name__ != "__main__" else __spec__.name]
        command += ["--member", json.dumps([name, group, topic, namesrv])]
        environment = {"PYTHONPATH": str(Path.cwd()), "HOME": str(folder)}
        self._process = ChildProcess(name, command, folder, environment=environment, pipes=True)
        self._reader = threading.Thread(target=self._read, daemon=True)

    async def join(self) -> None:
        self._process.start()
        self._reader.start()

    async def leave(self) -> None:
        self._process.popen.kill()
        await beside(self._reader.join)
        await beside(self._process.kill)
        self._ledger.events["killed"] += 1

    def _read(self) -> None:
        for line in self._process.stdout:
            # The last line of a killed process may be cut off.
            if line.endswith("]\n"):
                self._ledger.calls.append(Call(*json.loads(line)))


def _options(**options: Any) -> dict[str, Any]:
    return {
        "consume_from": "first",
        "call_timeout_ms": PATIENCE_MS,
        "connect_timeout_ms": PATIENCE_MS,
        "await_termination_ms": PATIENCE_MS,
        **options,
    }


@dataclass
class Campaign:
    """Random events in one group, with a seed."""

    namesrv: str
    topic: str
    group: str
    seed: int
    folder: Path | None = None  # for members to be killed; None: none are
    site: ChaosSite | None = None  # whose connections are cut; None: none are
    ledger: Ledger = field(default_factory=Ledger)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._numbers = itertools.count()
        self._members: list[OwnMember | KilledMember] = []

    async def run(self, seconds: float, *, joins_min: int = 0) -> None:
        """Have members come and go for a while, then wait for every message."""
        end_ms = CLOCK.monotonic_ms() + seconds * 1000
        await self._join()
        async with self._messages():
            while CLOCK.monotonic_ms() < end_ms or self.ledger.events["joined"] < joins_min:
                await self._happen()
                await CLOCK.sleep_ms(self._random.uniform(0, EVENT_PAUSE_MS))
        if not any(isinstance(member, OwnMember) for member in self._members):
            await self._join()
        await until_reached(
            lambda: not self.ledger.missing(),
            timeout_s=DRAIN_TIMEOUT_S,
            what="every message received",
        )
        for member in list(self._members):
            await self._leave(member)

    async def _happen(self) -> None:
        if self.site is not None and self._random.random() < 0.1:
            self.ledger.events["cut"] += 1
            await beside(self.site.before_broker.cut)
        elif self._members and self._random.random() * MEMBERS_MAX < len(self._members):
            await self._leave(self._random.choice(self._members))
        else:
            await self._join()

    async def _join(self) -> None:
        name = f"member {next(self._numbers)}"
        member: OwnMember | KilledMember
        if self.folder is not None and self._random.random() < 0.2:
            folder = self.folder / name.replace(" ", "-")
            member = KilledMember(name, self.ledger, self.group, self.topic, self.namesrv, folder)
        else:
            member = OwnMember(
                name,
                self.ledger,
                self.group,
                self.topic,
                plain=self._random.random() < 0.5,
                namesrv=self.namesrv,
                # Sorted by chance, so that any member may get any queues.
                instance_name=f"{self._random.random():.6f}-{name}",
            )
        self._members.append(member)
        self.ledger.events["joined"] += 1
        await member.join()

    async def _leave(self, member: OwnMember | KilledMember) -> None:
        self._members.remove(member)
        self.ledger.events["left"] += 1
        await member.leave()

    @asynccontextmanager
    async def _messages(self) -> AsyncIterator[None]:
        stopping = asyncio.Event()

        async def keep_sending(producer: Producer) -> None:
            queues = await producer.queues(self.topic)
            while not stopping.is_set():
                for queue in queues:
                    receipt = await producer.send(Message(self.topic, b"next"), queue=queue)
                    # One that was repeated after a cut connection may be stored twice.
                    self.ledger.sent[queue.queue_id] = receipt.queue_offset + 1
                await CLOCK.sleep_ms(SEND_PAUSE_MS)

        straight = self.site.name_server.address if self.site else self.namesrv
        async with Producer(
            f"producers-{self.group}", namesrv=straight, send_timeout_ms=PATIENCE_MS
        ) as producer:
            sending = asyncio.create_task(keep_sending(producer))
            try:
                yield
            finally:
                stopping.set()
                await sending


def consume(name: str, group: str, topic: str, namesrv: str) -> None:
    """Be a member that is killed: print each call of the listener."""

    def listen(message: ReceivedMessage) -> None:
        began_ms = CLOCK.monotonic_ms()
        threading.Event().wait(WORK_MS / 2000)
        call = Call(message.queue_id, message.queue_offset, name, began_ms, CLOCK.monotonic_ms())
        sys.stdout.write(json.dumps(call) + "\n")
        sys.stdout.flush()

    consumer = blocking.PushConsumer(
        group, on_message=listen, ordered=True, **_options(namesrv=namesrv)
    )
    consumer.subscribe(topic)
    with consumer:
        threading.Event().wait()


def page(ledger: Ledger, faults: Sequence[str], *, seconds: float, seed: int) -> str:
    """The page about a campaign."""
    now = datetime.datetime.fromtimestamp(CLOCK.now_ms() / 1000, datetime.UTC)
    events = ledger.events
    return (
        "# Members of an ordered group that come and go\n\n"
        f"{'FAILED: ' + '; '.join(faults[:FAULTS_SHOWN_MAX]) if faults else 'Passed'}. "
        f"{now.date().isoformat()}, OrbitMQ {__version__}. "
        "Written by `tests/integration/client/hand_overs.py` (`make soak-ordered`).\n\n"
        f"Members of one group joined {events['joined']:,} times in {seconds:.0f} s and left "
        f"{events['left'] - events['killed']:,} times; {events['killed']:,} were killed, and all "
        f"connections were cut {events['cut']:,} times (seed {seed}). "
        f"{sum(ledger.sent.values()):,} messages were sent to {QUEUES} queues meanwhile. Each was "
        "received, none before the one it follows, and no two members worked on a queue at the "
        f"same time. {ledger.repeats:,} calls repeated a message, after a member had been killed.\n"
    )


def main() -> int:
    """Run a campaign, or be a member of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=CLOCK.now_ms() % 1_000_000)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--member", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.member:
        consume(*arguments.member)
        return 0
    sys.stdout.write(f"seed {arguments.seed}\n")
    with tempfile.TemporaryDirectory() as name, chaos_site(Path(name)) as site:
        topic = site.new_topic(queues=QUEUES)
        campaign = Campaign(
            site.namesrv, topic, "members", arguments.seed, Path(name) / "members", site
        )
        asyncio.run(campaign.run(arguments.seconds))
    ledger, faults = campaign.ledger, campaign.ledger.faults()
    sys.stdout.write(f"{dict(ledger.events)} repeats={ledger.repeats}\n")
    sys.stdout.write("".join(f"{fault}\n" for fault in faults[:FAULTS_SHOWN_MAX]))
    if arguments.page:
        written = page(ledger, faults, seconds=arguments.seconds, seed=arguments.seed)
        arguments.page.write_text(written)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
