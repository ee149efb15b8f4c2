"""Transactions against a model: any mix of steps, with restarts, kills and lost ends of the log."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.broker.confirmations import Confirmations
from orbitmq.broker.transactions.ending import Ending
from orbitmq.broker.transactions.half_messages import (
    COMMIT,
    ROLL_BACK,
    copied,
    half_properties,
    marked_offsets,
)
from orbitmq.broker.transactions.half_queue import HalfQueue, Progress
from orbitmq.broker.transactions.marked_ends import MarkedEnds
from orbitmq.broker.transactions.recovery import recover
from orbitmq.clock import ManualClock
from orbitmq.errors import RequestRefusedError
from orbitmq.model.names import HALF_DONE_TOPIC, HALF_TOPIC
from orbitmq.model.queues import PhysicalOffset
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.transactions import EndTransaction
from orbitmq.record.decode import decode_record
from orbitmq.record.properties import encode_properties
from orbitmq.store.config import FlushMode
from orbitmq.store.log.draft import Draft, Receipt
from orbitmq.store.message_store import MessageStore
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.opening.progress import ProgressFile, SavedProgress
from tests.crash.conftest import SHARED_MEMORY
from tests.crash.scenario import copy_as_killed, small_config

REAL_TOPIC = "T"
GROUP = "producers"


class Killed(BaseException):
    """The process ends before the next record is appended."""


@dataclass
class Record:
    """A record that was appended: whose it is, and where."""

    topic: str
    number: int
    receipt: Receipt


class Recorder:
    """A store that notes what is appended, and may be killed on the way."""

    def __init__(self, store: MessageStore, records: list[Record]) -> None:
        self._store = store
        self._records = records
        self.appends_left: int | None = None

    def append(self, draft: Draft) -> Receipt:
        if self.appends_left is not None:
            if self.appends_left == 0:
                raise Killed
            self.appends_left -= 1
        receipt = self._store.append(draft)
        number = int(draft.body)
        self._records.append(Record(draft.topic, number, receipt))
        return receipt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class TransactionsAndModel(RuleBasedStateMachine):
    """What is in the log, and what that means for each transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.runner = self.resources.enter_context(asyncio.Runner())
        self.generation = 0
        self.records: list[Record] = []
        self.count = 0
        self.saved = Progress(0, 0)
        # So many records are on disk, whatever happens.
        self.safe = 0
        self.clock = ManualClock()

    @initialize()
    def begin(self) -> None:
        home = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        folder = tempfile.TemporaryDirectory(prefix="orbitmq-crash-", dir=home)
        self.folder = Path(self.resources.enter_context(folder))
        for name in ("os.fdatasync", "os.fsync"):
            self.resources.enter_context(mock.patch(name))
        self._open()

    @property
    def root(self) -> Path:
        return self.folder / str(self.generation)

    # --- steps ----------------------------------------------------------------------------------

    @rule(body_bytes=st.integers(1, 300))
    def prepare(self, body_bytes: int) -> None:
        properties = half_properties(
            {"UNIQ_KEY": f"id-{self.count}", "own": "x" * body_bytes},
            topic=REAL_TOPIC,
            queue_id=0,
            group=GROUP,
        )
        draft = Draft(
            topic=HALF_TOPIC,
            body=b"%d" % self.count,
            properties=encode_properties(properties),
            born_ms=self.clock.now_ms(),
        )
        self.halves.prepare(draft, topic=REAL_TOPIC, queue_id=0, immunity_ms=None)
        self.store.publish()
        self.count += 1

    @precondition(lambda self: self.copies())
    @rule(
        share=st.floats(0, 1, exclude_max=True),
        outcome=st.sampled_from((COMMIT, COMMIT, ROLL_BACK)),
        killed_after=st.sampled_from((None, None, None, 0, 1)),
    )
    def end(self, share: float, outcome: int, killed_after: int | None) -> None:
        """End any transaction by any of its copies, ended ones as well."""
        copies = self.copies()
        record = copies[int(share * len(copies))]
        was_open = record.number in self.expected_open()
        asked = EndTransaction(
            producer_group=GROUP,
            half_offset=Long(record.receipt.queue_offset),
            physical_offset=Long(record.receipt.physical_offset),
            outcome=outcome,
            transaction_id=f"id-{record.number}",
        )
        self.recorder.appends_left = killed_after
        try:
            self.runner.run(self.ending.end(asked))
            assert was_open
        except RequestRefusedError:
            assert not was_open
        except Killed:
            self.kill()
        finally:
            self.recorder.appends_left = None

    @precondition(lambda self: self.halves.halves)
    @rule(
        share=st.floats(0, 1, exclude_max=True),
        counts=st.booleans(),
        killed_after=st.sampled_from((None, None, None, 0, 1)),
    )
    def check(self, share: float, counts: bool, killed_after: int | None) -> None:  # noqa: FBT001  # Hypothesis passes it by name
        """Store a half again, as a check does."""
        halves = list(self.halves.halves.values())
        half = halves[int(share * len(halves))]
        message = self.halves.read(half.offset)
        assert message is not None
        checks = half.checks + counts
        self.recorder.appends_left = killed_after
        try:
            self.halves.copy(half, copied(message, half, checks=checks), checks=checks)
            self.store.publish()
        except Killed:
            self.kill()
        finally:
            self.recorder.appends_left = None

    @rule()
    def save(self) -> None:
        progress = self.halves.progress()
        marked_until = self.halves.marked_until()
        assert marked_until is not None
        self.store.flush()
        marks = self.store.end_of(HALF_DONE_TOPIC, 0, committed=False)
        self.marked_ends.save(marked_until, marks)
        self.saved = progress
        self.safe = len(self.records)

    @rule()
    def restart(self) -> None:
        self.save()
        self.store.close()
        self._open()

    @rule()
    def kill(self) -> None:
        self._leave()
        self._open()

    @precondition(lambda self: len(self.records) > self.safe)
    @rule(cut=st.integers(1, 5), into=st.integers(0, 90))
    def tear(self, cut: int, into: int) -> None:
        """Lose everything from a position inside one of the last records on."""
        position = max(self.safe, len(self.records) - cut)
        receipt = self.records[position].receipt
        torn_at = receipt.physical_offset + into
        self._leave()
        for path in (self.root / "commitlog").iterdir():
            content, first = path.read_bytes(), int(path.name)
            kept = max(0, min(len(content), torn_at - first))
            path.write_bytes(content[:kept].ljust(len(content), b"\0"))
        progress_file = ProgressFile(self.root / OWN_FOLDER)
        progress = replace(progress_file.saved, flushed=receipt.physical_offset)
        if progress.dispatched > receipt.physical_offset:
            progress = SavedProgress(
                flushed=PhysicalOffset(receipt.physical_offset),
                checkpoint_before=progress.checkpoint_before,
                checkpoint_after=progress.checkpoint_after,
            )
        progress_file.write(progress)
        progress_file.close()
        del self.records[position:]
        self._open()

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def the_log_decides_what_is_open_and_what_was_delivered(self) -> None:
        if not hasattr(self, "store"):
            return
        delivered = Counter(record.number for record in self.records if record.topic == REAL_TOPIC)
        assert all(count == 1 for count in delivered.values()), delivered
        read = [
            int(decode_record(record).body)
            for record in self.store.read_bulk(REAL_TOPIC, 0, 0, 10_000, 1 << 24).records
        ]
        assert Counter(read) == delivered
        found = {
            int(message.body)
            for half in self.halves.halves.values()
            if (message := self.halves.read(half.offset)) is not None
        }
        assert found == self.expected_open()

    def copies(self) -> list[Record]:
        return [record for record in self.records if record.topic == HALF_TOPIC]

    def expected_open(self) -> set[int]:
        """Transactions with a copy that is not marked, and no delivered message."""
        marked = {record.number for record in self.records if record.topic == HALF_DONE_TOPIC}
        ended = {record.number for record in self.records if record.topic == REAL_TOPIC}
        return {
            record.number
            for record in self.copies()
            if record.receipt.queue_offset not in marked and record.number not in ended
        }

    # --- the store ------------------------------------------------------------------------------

    def _open(self) -> None:
        self.store = MessageStore(small_config(self.root, FlushMode.ASYNC), clock=self.clock)
        self.recorder = Recorder(self.store, self.records)
        store: Any = self.recorder
        self.halves = HalfQueue(store, clock=self.clock)
        self.marked_ends = MarkedEnds(self.store, self.root / OWN_FOLDER)
        self.halves.restore(
            recover(
                store,
                halves_from=self.saved.halves,
                marks_from=self.saved.marks,
                marked_until=self.marked_ends.load(),
            )
        )
        self.store.publish()

        async def make() -> Confirmations:
            return Confirmations(
                flushed=self.store.flushed,
                is_fenced=lambda: False,
                timeout_ms=60_000,
                clock=self.clock,
                is_sync=False,
            )

        self.ending = Ending(
            store,
            self.halves,
            self.runner.run(make()),
            has_queue=lambda *_: True,
            on_committed=lambda _: None,
            clock=self.clock,
        )

    def _leave(self) -> None:
        """Copy what a killed process leaves, and continue with the copy."""
        copy_as_killed(self.store, self.root, self.folder / str(self.generation + 1))
        self.store.close()
        shutil.rmtree(self.root)
        self.generation += 1

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                self.store.close()
        finally:
            self.resources.close()


def test_a_mark_names_the_halves_that_the_model_reads_from_it() -> None:
    assert marked_offsets(b"12") == [12]
    assert marked_offsets(b"12,15,") == [12, 15]
    assert marked_offsets(b"") == marked_offsets(b"x,1") == marked_offsets(b",") == []


TestTransactionsAndModel = TransactionsAndModel.TestCase
TestTransactionsAndModel.settings = settings(
    max_examples=15,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
