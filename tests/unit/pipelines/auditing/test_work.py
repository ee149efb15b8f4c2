"""How the work of an audit is cut and dealt out."""

from __future__ import annotations

import itertools
from pathlib import Path

from orbitmq.pipelines.auditing.directories import BrokerDirectories
from orbitmq.pipelines.auditing.work import (
    IndexFile,
    QueueRange,
    ReplicaRange,
    StoreRange,
    plan,
    shares,
)
from tests.unit.store.written_stores import LOG_FILE_BYTES, fill


def test_items_cover_everything_once(tmp_path: Path) -> None:
    fill(tmp_path / "a", 600)
    fill(tmp_path / "b", 600)
    work = plan(
        [BrokerDirectories("a", (str(tmp_path / "a"), str(tmp_path / "b")))], range_bytes=40_000
    )
    first = work.stores[0]

    ranges = [
        item for item in work.items if isinstance(item, StoreRange) and item.root == first.root
    ]
    compared = [item for item in work.items if isinstance(item, ReplicaRange)]

    for spans in (
        [(one.part.start, one.part.end) for one in ranges],
        [(one.start, one.end) for one in compared],
    ):
        assert spans[0][0] == 0
        assert spans[-1][1] == first.end
        assert all(one[1] == other[0] for one, other in itertools.pairwise(spans))
        assert all(end - start <= 40_000 for start, end in spans)
        # None across files.
        assert all(start // LOG_FILE_BYTES == (end - 1) // LOG_FILE_BYTES for start, end in spans)
    assert len([item for item in work.items if isinstance(item, QueueRange)]) == 8
    assert {item.root for item in work.items if isinstance(item, IndexFile)} == {
        str(tmp_path / "a"),
        str(tmp_path / "b"),
    }


def test_shares_have_every_item_and_about_the_same_cost() -> None:
    items = [
        IndexFile(root="a", path=str(number), is_clean=True, file_bytes=number)
        for number in range(1, 41)
    ]

    dealt = shares(items, 4)

    assert sorted(item.cost for share in dealt for item in share) == [one.cost for one in items]
    costs = [sum(item.cost for item in share) for share in dealt]
    assert max(costs) < 1.2 * min(costs)
    assert len(shares(items[:2], 4)) == 2
