"""The lock file: a restart does not give a queue to another client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.broker.groups.lock_file import FILE_NAME, LockFile
from orbitmq.broker.groups.queue_locks import LEASE_AFTER_LOSS_MS, QueueLocks
from orbitmq.clock import ManualClock
from orbitmq.errors import ProtocolError
from orbitmq.model.queues import MessageQueue

QUEUE = MessageQueue(topic="orders", broker_name="a", queue_id=0)
OTHER = MessageQueue(topic="orders", broker_name="a", queue_id=1)


async def test_a_lock_outlives_a_restart_until_its_client_would_no_longer_trust_it(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    locks = QueueLocks(clock=clock)
    locks.lock("group", "first", [QUEUE, OTHER])
    locks.unlock("group", "first", [OTHER])
    await LockFile(tmp_path, locks).save()

    again = QueueLocks(clock=clock)
    await LockFile(tmp_path, again).load()

    assert again.lock("group", "second", [QUEUE, OTHER]) == [OTHER]
    await clock.advance(LEASE_AFTER_LOSS_MS)
    assert again.lock("group", "second", [QUEUE]) == [QUEUE]


async def test_the_client_that_had_a_lock_renews_it_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    locks = QueueLocks(clock=clock)
    locks.lock("group", "first", [QUEUE])
    await LockFile(tmp_path, locks).save()
    again = QueueLocks(clock=clock)
    await LockFile(tmp_path, again).load()

    assert again.lock("group", "first", [QUEUE]) == [QUEUE]
    await clock.advance(LEASE_AFTER_LOSS_MS)

    assert again.lock("group", "second", [QUEUE]) == []


async def test_only_changes_of_owners_are_written(tmp_path: Path) -> None:
    locks = QueueLocks(clock=ManualClock())
    file = LockFile(tmp_path, locks)
    locks.lock("group", "first", [QUEUE])
    await asyncio.gather(*(file.save() for _ in range(20)))
    (tmp_path / FILE_NAME).unlink()

    locks.lock("group", "first", [QUEUE])
    await file.save()

    assert not (tmp_path / FILE_NAME).exists()


async def test_a_change_is_appended_and_the_last_owner_counts(tmp_path: Path) -> None:
    locks = QueueLocks(clock=ManualClock())
    file = LockFile(tmp_path, locks)
    locks.lock("group", "first", [QUEUE, OTHER])
    await file.save()
    before = (tmp_path / FILE_NAME).read_bytes()
    locks.unlock("group", "first", [QUEUE])
    locks.lock("group", "second", [QUEUE])
    locks.unlock("group", "first", [OTHER])
    await file.save()

    assert (tmp_path / FILE_NAME).read_bytes().startswith(before)
    again = QueueLocks(clock=ManualClock())
    await LockFile(tmp_path, again).load()
    assert list(again.owners()) == [("group", QUEUE, "second")]


async def test_the_file_stays_in_proportion_to_the_locks(tmp_path: Path) -> None:
    locks = QueueLocks(clock=ManualClock())
    file = LockFile(tmp_path, locks)
    largest = 0
    for number in range(3000):
        locks.unlock("group", f"client-{number - 1}", [QUEUE])
        locks.lock("group", f"client-{number}", [QUEUE])
        await file.save()
        largest = max(largest, (tmp_path / FILE_NAME).stat().st_size)

    assert largest < 100_000
    again = QueueLocks(clock=ManualClock())
    await LockFile(tmp_path, again).load()
    assert list(again.owners()) == [("group", QUEUE, "client-2999")]


async def test_files_of_older_versions_and_torn_ones_are_read(tmp_path: Path) -> None:
    locks = QueueLocks(clock=ManualClock())
    (tmp_path / FILE_NAME).write_text('[["group","a","orders",0,"first"]]')
    await LockFile(tmp_path, locks).load()
    assert list(locks.owners()) == [("group", QUEUE, "first")]

    locks = QueueLocks(clock=ManualClock())
    (tmp_path / FILE_NAME).write_text(
        '["group","first",[["a","orders",0],["a","orders",1]]]\n["group",null,[["a","ord'
    )
    file = LockFile(tmp_path, locks)
    await file.load()
    assert [found for _, found, _ in locks.owners()] == [QUEUE, OTHER]
    locks.unlock("group", "first", [OTHER])
    await file.save()
    assert (tmp_path / FILE_NAME).read_text() == '["group","first",[["a","orders",0]]]\n'


@pytest.mark.parametrize("content", [b"", b"[[1]]", b"\xff", b"[1]\n"])
async def test_a_file_that_cannot_be_read_is_ignored(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    locks = QueueLocks(clock=ManualClock())

    await LockFile(tmp_path, locks).load()

    assert locks.lock("group", "client", [QUEUE]) == [QUEUE]
    assert "queue locks not restored" in caplog.text


async def test_a_failed_write_does_not_delay_consumers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    locks = QueueLocks(clock=ManualClock())
    locks.lock("group", "client", [QUEUE])

    await LockFile(tmp_path / "file", locks).save()

    assert "queue locks not saved" in caplog.text


async def test_a_slave_keeps_what_its_master_has(tmp_path: Path) -> None:
    clock = ManualClock()
    locks = QueueLocks(clock=clock)
    locks.lock("g", "c1", [QUEUE])
    master = LockFile(tmp_path / "master", locks)

    slave = LockFile(tmp_path / "slave", QueueLocks(clock=clock))
    await slave.follow(await master.content())
    locks.unlock("g", "c1", [QUEUE])
    locks.lock("g", "c2", [OTHER])
    await slave.follow(await master.content())

    promoted = QueueLocks(clock=clock)
    await LockFile(tmp_path / "slave", promoted).load()
    assert list(promoted.owners()) == [("g", OTHER, "c2")]


async def test_a_slave_keeps_that_nothing_is_locked(tmp_path: Path) -> None:
    clock = ManualClock()
    slave = LockFile(tmp_path, QueueLocks(clock=clock))
    await slave.follow(b'["g","c1",[["b","T",0]]]\n')

    await slave.follow(b"")

    promoted = QueueLocks(clock=clock)
    await LockFile(tmp_path, promoted).load()
    assert list(promoted.owners()) == []


@pytest.mark.parametrize("content", [b"[", b"{}\n", b'["g","c1",[["b","T",0]]]', b"\xff\n"])
async def test_what_is_no_table_of_locks_is_not_kept(tmp_path: Path, content: bytes) -> None:
    slave = LockFile(tmp_path, QueueLocks(clock=ManualClock()))

    with pytest.raises(ProtocolError):
        await slave.follow(content)

    assert not (tmp_path / FILE_NAME).exists()
