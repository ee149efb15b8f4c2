"""A slave whose log is no part of its master's copies nothing, and says why."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.integration.replication.group import Group
from tests.waiting import until


async def _until_refused(group: Group, reason: str) -> None:
    following = group.brokers[1].replication.following
    assert following is not None
    await until(lambda: reason in following.failure)


async def test_a_slave_whose_log_differs_names_the_place(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.pair()
        await group.create_topic()
        for number in range(5):
            await group.send(b"same %d" % number)
        await group.until_copied()
        common = group.brokers[0].store.log_end
        await group.stop(1)
        await group.stop(0)
        shutil.copytree(tmp_path / "0", tmp_path / "before")
        await group.start(0)
        await group.send(b"lost by the master")
        await group.start(1)
        await group.until_copied()
        await group.stop(1)
        await group.stop(0)
        shutil.rmtree(tmp_path / "0")
        (tmp_path / "before").rename(tmp_path / "0")
        await group.start(0)
        await group.send(b"another one, at the same place")
        slave = await group.start(1)
        log_end = slave.store.log_end

        await _until_refused(group, f"from {common} on")

        assert slave.store.log_end == log_end
        assert len(group.brokers[0].replication.copies) == 0


async def test_a_slave_with_more_than_its_master_keeps_it(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.pair()
        await group.create_topic()
        await group.send(b"one")
        await group.until_copied()
        await group.stop(1)
        await group.stop(0)
        shutil.rmtree(tmp_path / "0")
        await group.start(0)
        slave = await group.start(1)
        log_end = slave.store.log_end

        await _until_refused(group, f"the log ends at {log_end}")

        assert slave.store.log_end == log_end > 0


async def test_a_slave_with_log_files_of_another_size_says_so(tmp_path: Path) -> None:
    async with Group(tmp_path) as group:
        await group.start(0)
        await group.create_topic()
        await group.send()
        await group.start(1, mappedFileSizeCommitLog=str(2 << 20))

        await _until_refused(group, "mappedFileSizeCommitLog")
