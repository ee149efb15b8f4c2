"""What an audit has to examine, cut into independent items of bounded size.

    a range of the log      its records, and the queue entries and keys that lead into it
    a range of a queue      whether its entries are in the order of the log
    a file of the index     its chains
    a range of two logs     whether a replica has the same bytes

All end where readers of the store stopped when it was planned, so a broker may have it open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.errors import StoreError, StoreFormatError
from orbitmq.store.index.consume_queue import ENTRY_BYTES
from orbitmq.store.opening.parts import CHECKPOINT_NAME, log_folders
from orbitmq.store.readonly.index_files import list_index_files
from orbitmq.store.readonly.readonly_store import SHARED_RECORDS, ReadOnlyStore
from orbitmq.store.tools.findings import Findings
from orbitmq.store.tools.index_agreement import add_strange_index_files, check_presence
from orbitmq.store.tools.missing_files import check_log_files, check_topics_file
from orbitmq.store.tools.queue_agreement import add_bad_queue, add_strange_files
from orbitmq.store.tools.range_verification import LogRange
from orbitmq.store.tools.verification import is_index_expected

if TYPE_CHECKING:
    from orbitmq.pipelines.auditing.directories import BrokerDirectories

RANGE_BYTES: Final = 256 * 1024 * 1024
_QUEUE_ENTRIES_MAX: Final = 4_000_000
_ATTEMPTS: Final = 3
# How much longer a byte takes than one of the log.
_ENTRY_COST: Final = 2
_INDEX_COST: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRange:
    """A range of the log of one directory."""

    root: str
    log_path: str
    part: LogRange

    @property
    def cost(self) -> int:
        """About how many bytes of a log take as long."""
        return self.part.end - self.part.start


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRange:
    """Entries of one queue."""

    root: str
    log_path: str
    topic: str
    queue_id: int
    first: int
    end: int
    log_start: int
    log_end: int

    @property
    def cost(self) -> int:
        """About how many bytes of a log take as long."""
        return (self.end - self.first) * ENTRY_BYTES * _ENTRY_COST


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """One file of a key index."""

    root: str
    path: str
    is_clean: bool
    file_bytes: int

    @property
    def cost(self) -> int:
        """About how many bytes of a log take as long."""
        return self.file_bytes * _INDEX_COST


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRange:
    """A range that two logs have."""

    root: str
    replica: str
    log_path: str
    start: int
    end: int
    # Until where both are complete.
    log_end: int

    @property
    def cost(self) -> int:
        """About how many bytes of a log take as long."""
        return self.end - self.start


Item = StoreRange | QueueRange | IndexFile | ReplicaRange
Cut = TypeVar("Cut", bound=Item)


@dataclass(slots=True, kw_only=True)
class StorePlan:
    """One directory, and what was found by a look at its files."""

    broker: str
    root: str
    # The directory that this one is a replica of; empty for the first of a broker.
    replica_of: str = ""
    start: int = 0
    end: int = 0
    queues: int = 0
    is_clean: bool = True
    log_file_bytes: int = 0
    findings: Findings = field(default_factory=Findings)
    # Why it could not be audited.
    error: str = ""


@dataclass(slots=True, kw_only=True)
class Plan:
    """All directories, and all items."""

    stores: list[StorePlan] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)


def plan(
    brokers: Sequence[BrokerDirectories], *, log_path: str = "", range_bytes: int = RANGE_BYTES
) -> Plan:
    """Look at the directories and cut the work; directories without a store get an error."""
    made = Plan()
    for broker in brokers:
        stores: list[StorePlan] = []
        for root in broker.roots:
            store = StorePlan(
                broker=broker.name, root=root, replica_of=stores[0].root if stores else ""
            )
            stores.append(store)
            try:
                made.items += _plan_store(store, log_path, range_bytes)
            except (StoreError, OSError) as error:
                store.error = str(error)
        for store in stores[1:]:
            if not (stores[0].error or store.error):
                made.items += _plan_replica(stores[0], store, log_path, range_bytes)
        made.stores += stores
    return made


def shares(items: Sequence[Cut], count_max: int) -> list[list[Cut]]:
    """Deal items out into shares that cost about the same."""
    count = max(1, min(count_max, len(items)))
    dealt: list[list[Cut]] = [[] for _ in range(count)]
    for number, item in enumerate(sorted(items, key=lambda item: -item.cost)):
        dealt[number % count].append(item)
    return [share for share in dealt if share]


def _plan_store(store: StorePlan, log_path: str, range_bytes: int) -> list[Item]:
    root = Path(store.root)
    if not any(path.exists() for path in (*log_folders(root, log_path), root / CHECKPOINT_NAME)):
        raise StoreError(
            f"{root} holds no store: it has neither a commit log nor a checkpoint",
            hint="name the storePathRootDir of a broker, and --log-path if it sets "
            "storePathCommitLog",
        )
    for attempts_left in reversed(range(_ATTEMPTS)):
        store.findings = Findings()
        with ReadOnlyStore(root, log_path=log_path) as opened:
            try:
                return list(_items(store, opened, log_path, range_bytes))
            except StoreError:
                # Retention of a live broker may delete files meanwhile.
                if opened.state.is_clean or not attempts_left:
                    raise
    raise AssertionError("the last attempt returns or raises")


def _items(
    store: StorePlan, opened: ReadOnlyStore, log_path: str, range_bytes: int
) -> Iterator[Item]:
    findings = store.findings
    store.start, store.end = int(opened.start), int(opened.end)
    store.is_clean = opened.state.is_clean
    store.log_file_bytes = opened.log.file_bytes
    check_log_files(opened, findings)
    keys = sorted(opened.folder_keys())
    store.queues = len(keys)
    check_topics_file(opened, findings, {topic for topic, _ in keys})
    required_until = int(opened.entries_known_until)
    for start, end in _ranges(opened, range_bytes):
        part = LogRange(start=start, end=end, log_end=store.end, required_until=required_until)
        yield StoreRange(root=store.root, log_path=log_path, part=part)
    for topic, queue_id in keys:
        if not topic.startswith(SHARED_RECORDS):
            yield from _queue_items(store, opened, topic, queue_id, log_path)
    yield from _index_items(store, opened)
    if not store.is_clean:
        findings.note(
            "the store is open, or was not stopped cleanly: what follows offset "
            f"{store.end} was not examined; opening it recovers that"
        )


def _ranges(opened: ReadOnlyStore, range_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of the log, none across files; a gap between files is one, too."""
    position, log_end = int(opened.start), int(opened.end)
    for file in opened.log.files:
        if position >= log_end:
            return
        if file.first_offset > position:
            yield position, min(file.first_offset, log_end)
        file_end = min(file.end_offset, log_end)
        yield from _cut(int(file.first_offset), file_end, range_bytes)
        position = file.end_offset


def _cut(start: int, end: int, range_bytes: int) -> Iterator[tuple[int, int]]:
    for at in range(start, end, range_bytes):
        yield at, min(at + range_bytes, end)


def _queue_items(
    store: StorePlan, opened: ReadOnlyStore, topic: str, queue_id: int, log_path: str
) -> Iterator[Item]:
    try:
        on_disk = opened.on_disk(topic, queue_id)
    except StoreFormatError as error:
        add_bad_queue(store.findings, topic, queue_id, error)
        return
    add_strange_files(store.findings, on_disk)
    for first, end in _cut(on_disk.first, on_disk.end, _QUEUE_ENTRIES_MAX):
        yield QueueRange(
            root=store.root,
            log_path=log_path,
            topic=topic,
            queue_id=queue_id,
            first=first,
            end=end,
            log_start=store.start,
            log_end=store.end,
        )


def _index_items(store: StorePlan, opened: ReadOnlyStore) -> Iterator[Item]:
    folder = opened.root / "index"
    paths, strange_files = list_index_files(folder)
    add_strange_index_files(store.findings, strange_files)
    if not paths:
        check_presence(folder, store.findings, is_expected=is_index_expected(opened))
    for path in paths:
        yield IndexFile(
            root=store.root,
            path=str(path),
            is_clean=store.is_clean,
            file_bytes=path.stat().st_size,
        )


def _plan_replica(
    first: StorePlan, replica: StorePlan, log_path: str, range_bytes: int
) -> Iterator[Item]:
    start, end = max(first.start, replica.start), min(first.end, replica.end)
    for store, other in ((first, replica), (replica, first)):
        if store.end < other.end:
            store.findings.note(
                f"its log ends {other.end - store.end} bytes before that of {other.root}"
            )
    file_bytes = first.log_file_bytes
    while start < end:
        file_end = min(start // file_bytes * file_bytes + file_bytes, end) if file_bytes else end
        for at, to in _cut(start, file_end, range_bytes):
            yield ReplicaRange(
                root=first.root,
                replica=replica.root,
                log_path=log_path,
                start=at,
                end=to,
                log_end=end,
            )
        start = file_end
