"""Refuses stores that OrbitMQ cannot open, by the files in their folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreFormatError

_BATCH_QUEUE: Final = re.compile(rb'"\+?queue\.type"\s*:\s*"BatchCQ"', re.IGNORECASE)
_COMPACTION: Final = re.compile(rb'"\+?cleanup\.policy"\s*:\s*"COMPACTION"', re.IGNORECASE)


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
