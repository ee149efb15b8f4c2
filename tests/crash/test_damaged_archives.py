"""Damage to the table of archives: it never says that more is archived than is."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from orbitmq.broker.archives.archive_table import ArchiveTable
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigFileError
from orbitmq.protocol.requests.archives import MarkMove
from tests.crash.damaging import KINDS, flipped

_TABLE = "config/archives.json"
_KINDS = KINDS | {"bit flipped": flipped(), "": lambda _path, _rng: None}


async def table_at(folder: Path) -> ArchiveTable:
    table = ArchiveTable(folder / "config", folder / "orbitmq", clock=ManualClock())
    await table.load()
    return table


@pytest.fixture
async def written(tmp_path: Path) -> Path:
    """The table of two archives, of which one was advanced, and one lost its topic."""
    folder = tmp_path / "written"
    table = await table_at(folder)
    for name, topic in (("lake", "orders"), ("bills", "bills")):
        await table.open(name, topic=topic, gates=True, target="", life_from=0, starts=dict)
        await table.advance(name, 1, [MarkMove(0, 0, 9), MarkMove(1, 0, 20)], {0: 9, 1: 20})
    await table.end_life("bills")
    return folder


async def outcome_of(written: Path, copy: Path, damaged: dict[str, str], seed: int) -> str:
    """Damage a copy and load it; returns what happened."""
    before = (await table_at(written)).known
    shutil.copytree(written, copy)
    rng = random.Random(seed)
    for file, kind in damaged.items():
        _KINDS[kind](copy / file, rng)
    try:
        known = (await table_at(copy)).known
        # A second start must not take what the first one wrote for the whole truth.
        again = (await table_at(copy)).known
    except ConfigFileError as error:
        return "refused" if "archives.json" in str(error) else f"refused, namelessly: {error}"
    finally:
        shutil.rmtree(copy)
    assert again.unknown == known.unknown
    if known.unknown:
        return "keeps everything"
    assert known.archives == before.archives
    return "has everything"


@pytest.mark.parametrize("kind", [kind for kind in _KINDS if kind])
async def test_a_damaged_table_has_all_or_keeps_everything_or_stops_the_start(
    written: Path, tmp_path: Path, kind: str
) -> None:
    outcomes = set()
    for seed in range(20 if kind == "bit flipped" else 1):
        for copy_kind in ("", "garbage", "deleted", kind):
            damaged = {_TABLE: kind, f"{_TABLE}.bak": copy_kind}
            outcomes.add(await outcome_of(written, tmp_path / "copy", damaged, seed))

    assert outcomes <= {"refused", "keeps everything", "has everything"}
    # Only a bit of the checksum's own name can be flipped without a trace.
    assert "has everything" not in outcomes or kind == "bit flipped"


@pytest.mark.parametrize("kind", ["garbage", "deleted", "a folder"])
async def test_damage_to_the_file_that_says_there_is_a_table_is_no_harm(
    written: Path, tmp_path: Path, kind: str
) -> None:
    copy = tmp_path / "copy"

    alone = await outcome_of(written, copy, {"orbitmq/archives": kind}, 1)

    assert alone == "has everything"
