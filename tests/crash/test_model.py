"""A store against a plain list: any mix of appends, reads, reopenings, kills and cuts."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.config import FlushMode
from orbitmq.store.log.draft import Receipt
from orbitmq.store.message_store import MessageStore
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.opening.progress import ProgressFile, SavedProgress
from tests.crash.agreement import check_agreement
from tests.crash.conftest import SHARED_MEMORY
from tests.crash.scenario import TOPIC, copy_as_killed, draft, number_of, small_config

QUEUES = 3


class StoreAndList(RuleBasedStateMachine):
    """What the store should hold, as lists of numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.resources = ExitStack()
        self.generation = 0
        self.expected: list[tuple[int, Receipt]] = []  # queue and receipt, in log order
        self.numbers: list[list[int]] = [[] for _ in range(QUEUES)]
        self.next_number = 0

    @initialize(mode=st.sampled_from(FlushMode))
    def begin(self, mode: FlushMode) -> None:
        home = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        folder = tempfile.TemporaryDirectory(prefix="orbitmq-crash-", dir=home)
        self.folder = Path(self.resources.enter_context(folder))
        for name in ("os.fdatasync", "os.fsync"):
            self.resources.enter_context(mock.patch(name))
        self.mode = mode
        self.store = MessageStore(small_config(self.root, mode))

    @property
    def root(self) -> Path:
        return self.folder / str(self.generation)

    @rule(
        queue_id=st.integers(0, QUEUES - 1),
        sizes=st.lists(st.sampled_from((20, 100, 100, 3000, 9000)), min_size=1, max_size=5),
    )
    def append(self, queue_id: int, sizes: list[int]) -> None:
        drafts = [
            draft(self.next_number + i, queue_id=queue_id, body_bytes=size)
            for i, size in enumerate(sizes)
        ]
        receipts = self.store.put_batch(drafts)
        assert [r.queue_offset for r in receipts] == [
            len(self.numbers[queue_id]) + i for i in range(len(sizes))
        ]
        self.expected += [(queue_id, receipt) for receipt in receipts]
        self.numbers[queue_id] += range(self.next_number, self.next_number + len(sizes))
        self.next_number += len(sizes)

    @rule(queue_id=st.integers(0, QUEUES - 1), share=st.floats(0, 1))
    def read(self, queue_id: int, share: float) -> None:
        numbers = self.numbers[queue_id]
        offset = int(share * len(numbers))
        found = self.store.read(TOPIC, queue_id, offset)
        messages = [self.store.message_at(int.from_bytes(r[28:36])) for r in found.records]
        assert [number_of(m) for m in messages if m] == numbers[
            offset : offset + len(found.records)
        ]
        assert bool(found.records) == (offset < len(numbers))

    @rule()
    def close_and_reopen(self) -> None:
        self.store.close()
        assert not (self.root / "abort").exists()
        self.store = MessageStore(small_config(self.root, self.mode))

    @rule()
    def save_progress(self) -> None:
        self.store._upkeep.round()

    @rule()
    def kill(self) -> None:
        self._leave()
        self.store = MessageStore(small_config(self.root, self.mode))

    @precondition(lambda self: self.expected)
    @rule(cut=st.integers(1, 4), into=st.integers(0, 90))
    def tear(self, cut: int, into: int) -> None:
        """Lose everything from a position inside one of the last records on."""
        position = max(0, len(self.expected) - cut)
        _, receipt = self.expected[position]
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
        for queue_id, _ in self.expected[position:]:
            self.numbers[queue_id].pop()
        del self.expected[position:]
        self.store = MessageStore(small_config(self.root, self.mode))

    def _leave(self) -> None:
        """Copy what a killed process leaves, and continue with the copy."""
        copy_as_killed(self.store, self.root, self.folder / str(self.generation + 1))
        self.store.close()
        shutil.rmtree(self.root)
        self.generation += 1

    @invariant()
    def ends_are_those_of_the_list(self) -> None:
        for queue_id, numbers in enumerate(self.numbers):
            assert self.store.end_of(TOPIC, queue_id) == len(numbers)
            assert self.store.end_of(TOPIC, queue_id, committed=False) == len(numbers)

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                self.store.close()
                self._compare()
        finally:
            self.resources.close()

    def _compare(self) -> None:
        config = small_config(self.root, self.mode)
        with MessageStore(config) as store:
            queues = check_agreement(store, config)
        for queue_id, numbers in enumerate(self.numbers):
            messages = queues.get((TOPIC, queue_id), [])
            assert [number_of(message) for message in messages] == numbers


TestStoreAndList = StoreAndList.TestCase
TestStoreAndList.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
