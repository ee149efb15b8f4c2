"""The table of archives: marks that only grow, lives of topics, damage, bounds."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest

from orbitmq.broker.archives import archive_table
from orbitmq.broker.archives.archive_table import ArchiveTable
from orbitmq.clock import ManualClock
from orbitmq.errors import (
    ArchiveConflictError,
    ArchiveMissingError,
    ArchiveRefusedError,
    ConfigFileError,
)
from orbitmq.model.archives import Archive, KnownArchives
from orbitmq.protocol.requests.archives import MarkMove

ENDS = {0: 100, 1: 50}


async def table_at(folder: Path, *, is_newly_promoted: bool = False) -> ArchiveTable:
    """Load the table of a folder, as at a start."""
    table = ArchiveTable(folder / "config", folder / "orbitmq", clock=ManualClock())
    await table.load(is_newly_promoted=is_newly_promoted)
    return table


async def opened(folder: Path, name: str = "lake", topic: str = "orders") -> ArchiveTable:
    table = await table_at(folder)
    await open_in(table, name, topic)
    return table


async def open_in(
    table: ArchiveTable,
    name: str = "lake",
    topic: str = "orders",
    *,
    gates: bool = True,
    target: str = "",
    starts: dict[int, int] | None = None,
) -> Archive:
    return await table.open(
        name,
        topic=topic,
        gates=gates,
        target=target,
        life_from=0,
        starts=lambda: starts or {},
    )


async def advance(
    table: ArchiveTable, queue_id: int, before: int, mark: int, *, life: int = 1
) -> Archive:
    return await table.advance("lake", life, [MarkMove(queue_id, before, mark)], ENDS)


def path_of(folder: Path) -> Path:
    return folder / "config" / "archives.json"


async def test_marks_that_were_advanced_are_there_after_a_start(tmp_path: Path) -> None:
    table = await opened(tmp_path)
    await advance(table, 0, 0, 100)
    await advance(table, 1, 0, 7)

    again = await table_at(tmp_path)

    assert again.require("lake").marks == {0: 100, 1: 7}
    assert again.known == table.known
    assert again.known.unknown == ""


async def test_an_archive_begins_where_its_queues_begin(tmp_path: Path) -> None:
    table = await table_at(tmp_path)

    archive = await open_in(table, starts={0: 40, 1: 0})

    assert (archive.mark(0), archive.mark(1), archive.mark(2)) == (40, 0, 0)
    again = await open_in(table, starts={0: 60})
    assert again == archive


@pytest.mark.parametrize(
    ("queue_id", "before", "mark", "life", "reason"),
    [
        (0, 0, 20, 1, "is at 10 in queue 0 of topic 'orders', not at 0"),
        (0, 11, 20, 1, "is at 10 in queue 0 of topic 'orders', not at 11"),
        (0, 10, 9, 1, "cannot go back from 10 to 9"),
        (0, 10, 101, 1, "cannot be at 101 in queue 0 of topic 'orders', which ends at 100"),
        (2, 0, 1, 1, "cannot be at 1 in queue 2 of topic 'orders', which ends at 0"),
        (0, 10, 20, 2, "is about life 1 of topic 'orders', not 2"),
    ],
)
async def test_a_mark_moves_only_forward_from_what_the_archiver_knows(
    tmp_path: Path, queue_id: int, before: int, mark: int, life: int, reason: str
) -> None:
    table = await opened(tmp_path)
    await advance(table, 0, 0, 10)
    moves = [MarkMove(1, 0, 5), MarkMove(queue_id, before, mark)]

    with pytest.raises(ArchiveConflictError, match=reason):
        await table.advance("lake", life, moves, ENDS)

    assert table.require("lake").marks == {0: 10}


async def test_the_end_of_a_queue_may_be_archived_and_repeating_nothing_writes_nothing(
    tmp_path: Path,
) -> None:
    table = await opened(tmp_path)
    await advance(table, 0, 0, 100)
    revision = table.known.revision

    await advance(table, 0, 100, 100)

    assert table.known.revision == revision


async def test_an_unknown_archive_is_not_advanced_or_released(tmp_path: Path) -> None:
    table = await table_at(tmp_path)

    with pytest.raises(ArchiveMissingError):
        await advance(table, 0, 0, 1)
    with pytest.raises(ArchiveMissingError):
        await table.release("lake")


async def test_an_archive_is_found_again_only_as_what_it_is(tmp_path: Path) -> None:
    table = await opened(tmp_path)

    with pytest.raises(ArchiveRefusedError, match="has topic 'orders', not 'bills'"):
        await open_in(table, topic="bills")
    with pytest.raises(ArchiveRefusedError, match="has target '', not 'elsewhere'"):
        await open_in(table, target="elsewhere")
    with pytest.raises(ArchiveRefusedError, match="retention waits for archive"):
        await open_in(table, gates=False)
    assert (await open_in(table)).gates


async def test_an_archive_may_begin_to_gate(tmp_path: Path) -> None:
    table = await table_at(tmp_path)
    await open_in(table, gates=False)

    assert (await open_in(table, gates=True)).gates


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "a/b", "é"])
async def test_names_are_plain(tmp_path: Path, name: str) -> None:
    table = await table_at(tmp_path)

    with pytest.raises(ArchiveRefusedError):
        await open_in(table, name)
    assert table.known.archives == {}


async def test_targets_are_short_and_printable(tmp_path: Path) -> None:
    table = await table_at(tmp_path)

    for target in ("a\nb", "x" * 1025):
        with pytest.raises(ArchiveRefusedError, match="a target of"):
            await open_in(table, target=target)


async def test_archives_and_marks_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_table, "ARCHIVES_MAX", 2)
    monkeypatch.setattr(archive_table, "MARKS_MAX", 1)
    table = await opened(tmp_path)
    await open_in(table, "other")

    with pytest.raises(ArchiveRefusedError, match="3 archives are more than 2"):
        await open_in(table, "third")
    await advance(table, 0, 0, 1)
    with pytest.raises(ArchiveRefusedError, match="2 marks of all archives are more than 1"):
        await advance(table, 1, 0, 1)
    assert table.require("lake").marks == {0: 1}
    with pytest.raises(ArchiveRefusedError):
        await table.follow(KnownArchives(archives={str(n): table.require("lake") for n in "abc"}))


async def test_a_deleted_topic_ends_the_marks_of_its_archives_only(tmp_path: Path) -> None:
    table = await opened(tmp_path)
    await open_in(table, "bills", "bills")
    await advance(table, 0, 0, 10)
    before = table.require("bills")

    await table.end_life("orders")

    ended = table.require("lake")
    assert (ended.life, ended.marks, ended.gates) == (2, {}, True)
    assert table.require("bills") == before
    with pytest.raises(ArchiveConflictError, match="is about life 2"):
        await advance(table, 0, 0, 10)
    await table.note_deletions({"orders": 1000, "other": 2000})
    assert table.require("lake").life_from == 1000
    assert table.require("lake").life == 2
    await advance(table, 0, 0, 10, life=2)
    await table.note_deletions({"orders": 1000})
    assert table.require("lake").marks == {0: 10}


async def test_marks_from_before_a_deletion_that_the_table_lacks_end_at_the_start(
    tmp_path: Path,
) -> None:
    table = await opened(tmp_path)
    await advance(table, 0, 0, 10)

    await table.end_deleted({"orders": 1})

    assert (table.require("lake").life, table.require("lake").marks) == (2, {})
    assert table.require("lake").life_from == 1


async def test_marks_above_the_end_of_a_queue_are_lowered_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = await opened(tmp_path)
    await advance(table, 0, 0, 100)
    await advance(table, 1, 0, 50)

    await table.lower_to_ends({("orders", 0): 90, ("other", 1): 50})

    assert table.require("lake").marks == {0: 90, 1: 0}
    assert table.require("lake").life == 1
    assert "marks lowered archive=lake topic=orders queues=[0, 1]" in caplog.text
    assert (await table_at(tmp_path)).known == table.known


# --- damage -------------------------------------------------------------------------------------


async def test_the_copy_of_the_file_has_an_archive_as_soon_as_it_is_open(tmp_path: Path) -> None:
    await opened(tmp_path)

    path_of(tmp_path).write_bytes(b"{")
    again = await table_at(tmp_path)

    assert again.require("lake").gates
    assert "damaged" in again.known.unknown


@pytest.mark.parametrize("spoilt", ["torn", "missing", "a changed mark"])
async def test_a_table_that_is_not_as_it_was_written_keeps_everything_until_told(
    tmp_path: Path, spoilt: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = await opened(tmp_path)
    await advance(table, 0, 0, 10)
    path = path_of(tmp_path)
    if spoilt == "torn":
        path.write_bytes(path.read_bytes()[:-20])
    elif spoilt == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b":10", b":90"))

    once = await table_at(tmp_path)
    twice = await table_at(tmp_path)

    assert once.known.unknown == twice.known.unknown == "archives.json was damaged, lost or edited"
    assert "archives may be missing, all log files are kept" in caplog.text
    await twice.release("")
    assert (await table_at(tmp_path)).known.unknown == ""


async def test_a_table_that_is_gone_with_its_copy_keeps_everything_until_told(
    tmp_path: Path,
) -> None:
    await opened(tmp_path)
    for path in (tmp_path / "config").iterdir():
        path.unlink()

    again = await table_at(tmp_path)

    assert again.known.unknown == "archives.json is missing, and so is its copy"
    assert again.known.archives == {}


async def test_the_file_that_says_that_there_is_a_table_is_written_again(tmp_path: Path) -> None:
    await opened(tmp_path)
    (tmp_path / "orbitmq" / "archives").unlink()

    again = await table_at(tmp_path)

    assert again.known.unknown == ""
    assert (tmp_path / "orbitmq" / "archives").exists()


async def test_a_table_that_is_damaged_with_its_copy_stops_the_start(tmp_path: Path) -> None:
    await opened(tmp_path)
    for path in (tmp_path / "config").iterdir():
        path.write_bytes(b"{")

    with pytest.raises(ConfigFileError, match=r"archives\.json"):
        await table_at(tmp_path)


async def test_a_broker_that_never_had_an_archive_keeps_nothing(tmp_path: Path) -> None:
    table = await table_at(tmp_path)

    assert table.known == KnownArchives()
    assert not path_of(tmp_path).exists()


async def test_a_folder_that_cannot_be_written_opens_no_archive(tmp_path: Path) -> None:
    table = await table_at(tmp_path)
    (tmp_path / "orbitmq").write_bytes(b"")

    with pytest.raises(ConfigFileError, match="nothing was changed"):
        await open_in(table)
    assert table.known.archives == {}


# --- slaves -------------------------------------------------------------------------------------


async def test_a_slave_has_the_table_of_its_master(tmp_path: Path) -> None:
    master = await opened(tmp_path / "master")
    await advance(master, 0, 0, 10)
    slave = await table_at(tmp_path / "slave")

    await slave.follow(master.known)
    await master.release("lake")
    await open_in(master, "other")
    await slave.follow(master.known)

    promoted = await table_at(tmp_path / "slave", is_newly_promoted=True)
    assert promoted.known == master.known


async def test_a_slave_that_never_had_a_table_keeps_everything_once_it_is_promoted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        promoted = await table_at(tmp_path, is_newly_promoted=True)

    assert promoted.known.unknown == "this broker was promoted before it had its master's archives"
    assert "orbitmq lake release" in caplog.text


@pytest.mark.parametrize("master", [KnownArchives(), None], ids=["no archive", "none of ours"])
async def test_a_slave_of_a_master_without_archives_keeps_nothing_when_promoted(
    tmp_path: Path, master: KnownArchives | None
) -> None:
    slave = await table_at(tmp_path)
    await slave.follow(master)

    promoted = await table_at(tmp_path, is_newly_promoted=True)

    assert promoted.known == KnownArchives()


async def test_a_slave_keeps_its_archives_under_a_master_that_has_no_such_table(
    tmp_path: Path,
) -> None:
    slave = await opened(tmp_path)
    before = slave.known

    await slave.follow(None)

    assert slave.known == before


async def test_a_slave_learns_that_its_master_may_lack_archives(tmp_path: Path) -> None:
    slave = await opened(tmp_path)

    await slave.follow(msgspec.structs.replace(slave.known, unknown="lost"))

    assert slave.known.unknown == "lost"
