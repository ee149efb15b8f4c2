"""Stores of kinds that OrbitMQ refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import StoreFormatError
from orbitmq.store.opening.refusals import refuse_foreign_kinds


@pytest.mark.parametrize(
    ("name", "content", "feature"),
    [
        ("consumequeue/CURRENT", "MANIFEST-000004\n", "RocksDB"),
        ("consumequeue_r/CURRENT", "MANIFEST-000004\n", "RocksDB"),
        ("dledger-n0/data/00000000000000000000", "x", "DLedger"),
        ("batchconsumequeue/t/0/00000000000000000000", "x", "BatchCQ"),
        ("compaction/compactionLog/t/0/00000000000000000000", "x", "compaction topics"),
        ("config/topics.json", '{"t":{"attributes":{"queue.type":"BatchCQ"}}}', "BatchCQ"),
        ("config/topics.json", '{"attributes":{"cleanup.policy" : "COMPACTION"}}', "compaction"),
    ],
)
def test_the_feature_is_named(tmp_path: Path, name: str, content: str, feature: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(content)

    with pytest.raises(StoreFormatError, match=feature):
        refuse_foreign_kinds(tmp_path)


def test_an_ordinary_store_with_empty_folders_of_other_kinds_is_accepted(tmp_path: Path) -> None:
    for name in ("batchconsumequeue", "compaction/compactionLog", "consumequeue/t/0"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "compaction" / "position-checkpoint").write_text("{}")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"attributes":{"queue.type":"SimpleCQ"}}')

    refuse_foreign_kinds(tmp_path)
