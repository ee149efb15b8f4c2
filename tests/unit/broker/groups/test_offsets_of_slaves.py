"""Committed offsets of a slave: the master's, and what clients committed at the slave."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.broker.groups.committed_offsets import FILE_NAME, CommittedOffsets
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigFileError, OffsetRefusedError
from orbitmq.model.versions import DataVersion

VERSION = DataVersion(counter=7, state_version=2, timestamp=9)


async def slave(folder: Path, *, commits_here_max: int = 100) -> CommittedOffsets:
    offsets = CommittedOffsets(
        folder, clock=ManualClock(), queues_max=10, commits_here_max=commits_here_max
    )
    await offsets.load()
    offsets.note_commits(on=True)
    return offsets


async def test_a_slave_takes_the_offsets_and_the_version_of_its_master(tmp_path: Path) -> None:
    offsets = await slave(tmp_path)

    await offsets.follow({"T@g": {0: 5, 1: 6}, "a@b@c": {0: 1}}, VERSION)

    again = await slave(tmp_path)
    for table in (offsets, again):
        assert table.table() == {"T@g": {0: 5, 1: 6}, "a@b@c": {0: 1}}
        assert table.data_version == VERSION


async def test_offsets_that_fell_or_vanished_at_the_master_do_so_at_the_slave(
    tmp_path: Path,
) -> None:
    offsets = await slave(tmp_path)
    await offsets.follow({"T@g": {0: 5, 1: 6}, "T@gone": {0: 1}}, VERSION)

    await offsets.follow({"T@g": {0: 2}}, VERSION)

    assert offsets.table() == {"T@g": {0: 2}}


async def test_a_commit_at_the_slave_outlives_a_lower_offset_of_the_master(tmp_path: Path) -> None:
    offsets = await slave(tmp_path)
    await offsets.follow({"T@g": {0: 5, 1: 5}}, VERSION)
    offsets.commit("g", "T", 0, 8)
    offsets.commit("g", "T", 1, 3)
    offsets.commit("new", "T", 2, 4)

    await offsets.follow({"T@g": {0: 6, 1: 6}}, VERSION)

    assert offsets.table() == {"T@g": {0: 8, 1: 6}, "T@new": {2: 4}}
    assert offsets.commits_here == {
        ("g", "T", 0): 8,
        ("g", "T", 1): 3,
        ("new", "T", 2): 4,
    }


async def test_commits_at_the_slave_are_remembered_across_a_restart(tmp_path: Path) -> None:
    before = await slave(tmp_path)
    before.commit("g", "T", 0, 8)
    await before.save()

    after = await slave(tmp_path)

    assert after.commits_here == {("g", "T", 0): 8}
    assert after.get("g", "T", 0) == 8


async def test_what_the_master_has_is_forgotten_unless_it_was_committed_again(
    tmp_path: Path,
) -> None:
    offsets = await slave(tmp_path)
    offsets.commit("g", "T", 0, 8)
    offsets.commit("g", "T", 1, 8)
    handed_over = offsets.commits_here
    offsets.commit("g", "T", 1, 9)

    offsets.forget_commits(handed_over)
    await offsets.save()

    assert offsets.commits_here == {("g", "T", 1): 9}
    assert (await slave(tmp_path)).commits_here == {("g", "T", 1): 9}


async def test_a_commit_during_the_write_of_the_master_s_offsets_is_kept(tmp_path: Path) -> None:
    offsets = await slave(tmp_path)
    following = asyncio.create_task(offsets.follow({"T@g": {0: 5}}, VERSION))
    saving = asyncio.create_task(offsets.save())
    while not ((tmp_path / FILE_NAME).exists() or following.done()):
        # Every commit is at another moment of the write.
        offsets.commit("g", "T", 1, (offsets.get("g", "T", 1) or 0) + 1)
        await asyncio.wait({following}, timeout=0.0001)

    await following
    await saving
    await offsets.save()

    last = offsets.get("g", "T", 1)
    assert last is not None
    assert offsets.table() == {"T@g": {0: 5, 1: last}}
    assert (await slave(tmp_path)).table() == offsets.table()


async def test_offsets_that_cannot_be_saved_are_not_seen(tmp_path: Path) -> None:
    offsets = await slave(tmp_path)
    await offsets.follow({"T@g": {0: 5}}, VERSION)
    (tmp_path / FILE_NAME).unlink()
    (tmp_path / FILE_NAME).mkdir()

    with pytest.raises(ConfigFileError, match="nothing was changed"):
        await offsets.follow({"T@g": {0: 6}}, DataVersion())

    assert offsets.table() == {"T@g": {0: 5}}
    assert offsets.data_version == VERSION


async def test_a_table_with_too_many_queues_changes_nothing(tmp_path: Path) -> None:
    offsets = await slave(tmp_path)

    with pytest.raises(OffsetRefusedError, match="offsets of 11 queues, of at most 10"):
        await offsets.follow({"T@g": dict.fromkeys(range(10), 1), "a@b@c": {0: 1}}, VERSION)

    assert offsets.table() == {}


async def test_the_oldest_of_too_many_commits_is_not_remembered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    offsets = await slave(tmp_path, commits_here_max=2)

    for queue_id in range(5):
        offsets.commit("g", "T", queue_id, 1)

    assert offsets.commits_here == {("g", "T", 3): 1, ("g", "T", 4): 1}
    assert offsets.queues("g", "T") == dict.fromkeys(range(5), 1)
    assert caplog.text.count("will not be passed on to the master") == 1


async def test_a_master_remembers_no_commits_and_drops_those_of_a_slave(tmp_path: Path) -> None:
    before = await slave(tmp_path)
    before.commit("g", "T", 0, 8)
    await before.save()
    master = CommittedOffsets(tmp_path, clock=ManualClock())
    await master.load()
    master.commit("g", "T", 0, 9)
    await master.save()

    written = json.loads(java_json.to_standard((tmp_path / FILE_NAME).read_bytes()))
    promoted = before
    promoted.note_commits(on=False)
    promoted.commit("g", "T", 0, 9)

    assert "orbitmqCommitsHere" not in written
    assert master.commits_here == promoted.commits_here == {}


async def test_commits_of_deleted_topics_and_groups_are_forgotten(tmp_path: Path) -> None:
    offsets = await slave(tmp_path)
    for group, topic in (("g", "T"), ("gone", "T"), ("g", "deleted")):
        offsets.commit(group, topic, 0, 1)

    offsets.delete_group("gone")
    offsets.delete_topic("deleted")

    assert offsets.commits_here == {("g", "T", 0): 1}
