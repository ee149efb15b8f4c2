"""What does storing a message cost, against copying its bytes, and against a bare sync of them?

    python -m benchmarks.store_append [--rounds N] [--smoke]

Without flush, the baseline copies the same records into a mapped file whose pages are new, as the
log's are. With group commit, the baseline copies as many records as wait for one sync, and syncs.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.messages import NOW_MS, body_of, properties_of
from benchmarks.rounds import Form, Measured, measure, options, report
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore

MIB: Final = 1024 * 1024
SLICE_BYTES: Final = 8 * MIB
FILE_BYTES: Final = 512 * MIB
BODY_BYTES: Final = (128, 1024, 64 * 1024)
BATCH: Final = 32
WAITERS: Final = (1, 64, 256)
# Records of a slice under group commit: enough syncs to be measured, and few seconds in all.
WAITED_RECORDS: Final = {1: 200, 64: 64 * 30, 256: 256 * 15}
COPYING: Final = "copying, new pages"
COPYING_WARM: Final = "copying, pages in memory"
SYNCING: Final = "copying and fdatasync"


class CopiedFile:
    """A mapped file that records are copied into, one behind the other."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self.descriptor = os.open(folder / "copied", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._file_bytes = file_bytes
        os.posix_fallocate(self.descriptor, 0, file_bytes)
        self._mapped = mmap.mmap(self.descriptor, file_bytes)
        self._view = memoryview(self._mapped)
        self._at = 0

    def copy(self, record: bytes, count: int) -> int:
        """Append a record `count` times."""
        view, at, size = self._view, self._at, len(record)
        if at + size * count > self._file_bytes:
            at = 0
            self._renew()
            view = self._view
        for _ in range(count):
            view[at : at + size] = record
            at += size
        self._at = at
        return count

    def copy_again(self, record: bytes, count: int) -> int:
        """Copy it to the beginning of the file, whose pages are in memory."""
        view, at, size = self._view, 0, len(record)
        for _ in range(count):
            view[at : at + size] = record
            at += size
        return count

    def sync(self) -> None:
        """Put it on disk."""
        os.fdatasync(self.descriptor)

    def close(self) -> None:
        """Let it go."""
        self._view.release()
        self._mapped.close()
        os.close(self.descriptor)

    def _renew(self) -> None:
        """Go on with pages that were never touched."""
        self._view.release()
        self._mapped.close()
        os.ftruncate(self.descriptor, 0)
        os.posix_fallocate(self.descriptor, 0, self._file_bytes)
        self._mapped = mmap.mmap(self.descriptor, self._file_bytes)
        self._view = memoryview(self._mapped)


def draft_of(body: bytes, *, queue_id: int = 0) -> Draft:
    """The message that is stored."""
    properties = properties_of(0)
    return Draft(
        topic="orders", queue_id=queue_id, body=body, properties=properties, born_ms=NOW_MS
    )


@contextmanager
def opened(folder: Path, mode: FlushMode, *, file_bytes: int) -> Iterator[MessageStore]:
    """A store that flushes when asked only."""
    config = StoreConfig(
        root=folder / "store",
        log_file_bytes=file_bytes,
        flush_mode=mode,
        flush_interval_ms=60_000,
        flush_thorough_interval_ms=3_600_000,
        flush_pages_min=1_000_000,
        index_enable=False,
    )
    with MessageStore(config) as store:
        yield store


def record_of(store: MessageStore, draft: Draft) -> bytes:
    """The bytes that a message has in the log."""
    receipt = store.append(draft)
    store.publish()
    store.confirm([receipt])
    (record,) = store.read(draft.topic, draft.queue_id, receipt.queue_offset).records
    return record


def plain_append(store: MessageStore, draft: Draft) -> Callable[[], object]:
    """Append a message as a broker's hot path does: plain arguments, no receipt."""
    return partial(
        store.appender.append,
        draft.topic.encode(),
        draft.queue_id,
        draft.body,
        draft.properties,
        draft.flag,
        draft.system_flag,
        draft.born_ms,
        draft.born_host,
        draft.reconsume_times,
        draft.prepared_offset,
        NOW_MS,
    )


# --- without flush ------------------------------------------------------------------------------


def append_forms(
    store: MessageStore, copied: CopiedFile, body_bytes: int, slice_bytes: int
) -> dict[str, Form]:
    """Each form appends a slice of records."""
    draft = draft_of(body_of(body_bytes))
    record = record_of(store, draft)
    batches = max(1, slice_bytes // len(record) // BATCH)
    count = batches * BATCH
    batch = [draft] * BATCH

    def append() -> int:
        for _ in range(count):
            store.append(draft)
        return count

    def append_batch() -> int:
        for _ in range(batches):
            store.append_batch(batch)
        return count

    plain = plain_append(store, draft)

    def append_plain() -> int:
        for _ in range(count):
            plain()
        return count

    def append_published() -> int:
        # As a broker does: messages of one chunk are appended, then shown to readers at once.
        for _ in range(batches):
            for _ in range(BATCH):
                plain()
            store.publish()
        return count

    return {
        COPYING: lambda: copied.copy(record, count),
        COPYING_WARM: lambda: copied.copy_again(record, count),
        "append": append,
        f"append_batch of {BATCH}": append_batch,
        "appender.append": append_plain,
        f"appender.append, {BATCH} published together": append_published,
    }


# --- group commit -------------------------------------------------------------------------------


def put_in_threads(store: MessageStore, drafts: list[Draft], times: int) -> int:
    """Have each message put `times` times by a thread of its own, which waits every time."""

    def put_all(draft: Draft) -> None:
        for _ in range(times):
            store.put(draft)

    threads = [threading.Thread(target=put_all, args=(draft,)) for draft in drafts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times * len(drafts)


def group_forms(
    store: MessageStore, copied: CopiedFile, waiters: int, count: int
) -> dict[str, Form]:
    """Each form writes records of 128 bytes that wait for the disk, `waiters` at a time."""
    body = body_of(128)
    record = record_of(store, draft_of(body))
    groups = max(1, count // waiters)
    drafts = [draft_of(body, queue_id=number % 8) for number in range(waiters)]

    def copy_and_sync() -> int:
        for _ in range(groups):
            copied.copy(record, waiters)
            copied.sync()
        return groups * waiters

    appends = [plain_append(store, draft) for draft in drafts[:-1]]

    def confirm_groups() -> int:
        # As a broker does: it appends what a chunk holds, and one wait covers all of it.
        for _ in range(groups):
            for append in appends:
                append()
            store.confirm([store.append(drafts[-1])])
        return groups * waiters

    return {
        SYNCING: copy_and_sync,
        f"put in {waiters} thread{'s' * (waiters > 1)}": lambda: put_in_threads(
            store, drafts, groups
        ),
        f"appender.append {waiters}, confirm once": confirm_groups,
    }


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare storing a message with copying it.", rounds=15)
    rounds = 1 if chosen.smoke else chosen.rounds
    slice_bytes = SLICE_BYTES // 16 if chosen.smoke else SLICE_BYTES
    file_bytes = FILE_BYTES // 16 if chosen.smoke else FILE_BYTES
    measured: list[Measured] = []
    for body_bytes in BODY_BYTES:
        with tempfile.TemporaryDirectory() as folder:
            copied = CopiedFile(Path(folder), file_bytes)
            with opened(Path(folder), FlushMode.ASYNC, file_bytes=file_bytes) as store:
                measured += measure(
                    f"{body_bytes} B, no flush",
                    append_forms(store, copied, body_bytes, slice_bytes),
                    baseline=COPYING,
                    rounds=rounds,
                    seed=chosen.seed,
                )
            copied.close()
    for waiters in WAITERS:
        with tempfile.TemporaryDirectory() as folder:
            copied = CopiedFile(Path(folder), file_bytes)
            count = WAITED_RECORDS[waiters] // (10 if chosen.smoke else 1)
            with opened(Path(folder), FlushMode.SYNC, file_bytes=file_bytes) as store:
                measured += measure(
                    f"128 B, group commit of {waiters}",
                    group_forms(store, copied, waiters, count),
                    baseline=SYNCING,
                    rounds=rounds,
                    seed=chosen.seed,
                )
            copied.close()
    report("store_append", measured, kept=not chosen.smoke)


if __name__ == "__main__":
    main()
