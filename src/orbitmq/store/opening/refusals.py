"""Refuses stores that OrbitMQ cannot open, by the files in their folder."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.errors import StoreFormatError
from orbitmq.store.files.file_names import refuse_file, refuse_folder
from orbitmq.store.index.consume_queue import ENTRY_BYTES
from orbitmq.store.index.key_index import KeyIndex

if TYPE_CHECKING:
    from orbitmq.store.opening.shape import FileSizes

_BATCH_QUEUE: Final = re.compile(rb'"\+?queue\.type"\s*:\s*"BatchCQ"', re.IGNORECASE)
_COMPACTION: Final = re.compile(rb'"\+?cleanup\.policy"\s*:\s*"COMPACTION"', re.IGNORECASE)


def refuse_misplaced(root: Path) -> None:
    """Raise StoreFormatError if there is a file where a folder should be, or the other way."""
    for name in ("commitlog", "consumequeue", "index", "config", "timerlog", "orbitmq"):
        refuse_file(root / name)
    for name in ("abort", "checkpoint", "lock", "timerwheel"):
        refuse_folder(root / name)
    for name in ("deleted_topics", "marks", "reserved_offsets", "shape", "timers", "watermark"):
        refuse_folder(root / "orbitmq" / name)


def refuse_foreign_kinds(root: Path) -> None:
    """Raise StoreFormatError if the store uses a feature that OrbitMQ does not support."""
    _refuse_rocksdb(root)
    _refuse_dledger(root)
    topics = root / "config" / "topics.json"
    attributes = topics.read_bytes() if topics.is_file() else b""
    batch_queues, compacted = root / "batchconsumequeue", root / "compaction" / "compactionLog"
    if _has_files(batch_queues):
        raise _refusal(f"{batch_queues} holds queues of BatchCQ topics")
    if _BATCH_QUEUE.search(attributes):
        raise _refusal(f"{topics} names a BatchCQ topic")
    if _has_files(compacted):
        raise _refusal(f"{compacted} holds compaction topics")
    if _COMPACTION.search(attributes):
        raise _refusal(f"{topics} names a compaction topic")


def refuse_other_sizes(root: Path, sizes: FileSizes) -> None:
    """Raise StoreFormatError if queues or index were made with other sizes.

    Some files of another size are damaged, and can be rebuilt; if all are, the option is wrong.
    """
    index_bytes = KeyIndex.file_bytes(sizes.index_slots, sizes.index_entries)
    queue_bytes = -(-sizes.queue_file_bytes // ENTRY_BYTES) * ENTRY_BYTES
    for files, wanted, options in (
        ((root / "consumequeue").glob("*/*/*"), queue_bytes, "mappedFileSizeConsumeQueue"),
        ((root / "index").glob("*"), index_bytes, "maxHashSlotNum and maxIndexNum"),
    ):
        found = Counter(path.stat().st_size for path in files if path.is_file())
        del found[0]
        if len(found) == 1 and wanted not in found:
            (size,) = found
            raise StoreFormatError(
                f"files of {root} have {size} bytes, not {wanted}",
                hint=f"open the store with the {options} it was written with, or run: "
                "orbitmq store rebuild",
            )


def _refuse_rocksdb(root: Path) -> None:
    for folder in (root / "consumequeue", root / "consumequeue_r"):
        if (folder / "CURRENT").exists():
            raise _refusal(f"{folder} is a RocksDB database of consume queues")


def _refuse_dledger(root: Path) -> None:
    for folder in root.glob("dledger-*"):
        if _has_files(folder):
            raise _refusal(f"{folder} is a DLedger log")


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(path.is_file() for path in folder.rglob("*"))


def _refusal(found: str) -> StoreFormatError:
    return StoreFormatError(
        f"{found}; OrbitMQ cannot read that",
        hint="keep it on a RocketMQ broker; OrbitMQ reads stores with plain queues and a plain log",
    )
