"""Who may read the files of a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import java_json
from orbitmq.clock import ManualClock
from orbitmq.model.queues import MessageQueue
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.locking import LockQueues, QueuesToLock
from orbitmq.protocol.requests.offsets import CommitOffset
from orbitmq.protocol.requests.topics import DeleteTopic
from orbitmq.store.tools.rebuilding import rebuild
from tests.integration.broker.conftest import running


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """The usual one, which lets everybody read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


async def _write_every_file(folder: Path, **options: str) -> None:
    async with running(folder, ManualClock(), **options) as site:
        peer = await site.connect()
        await peer.heartbeat("c1")
        assert (await peer.send("T", KEYS="k", DELAY="1")).code == 0
        assert (await peer.send("T", KEYS="k")).code == 0
        await peer.make_topic("short-lived")
        assert (await peer.send("short-lived")).code == 0
        assert (await peer.ask(DeleteTopic(topic="short-lived"))).code == 0
        await peer.make_memory_topic("M")
        assert (await peer.send("M")).code == 0
        queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
        wanted = QueuesToLock(consumer_group="g", client_id="c1", queues=[queue])
        assert (await peer.ask(LockQueues(), java_json.encode(wanted))).code == 0
        await peer.ask(
            CommitOffset(consumer_group="g", topic="T", queue_id=0, commit_offset=Long(1))
        )


def _modes(folder: Path) -> tuple[set[str], set[str]]:
    """The modes of all folders and of all files."""
    folders, files = set[str](), set[str]()
    for path in (folder, *folder.rglob("*")):
        (folders if path.is_dir() else files).add(f"{path.stat().st_mode & 0o777:04o}")
    return folders, files


async def test_files_are_their_owners_alone_by_default(tmp_path: Path) -> None:
    await _write_every_file(tmp_path)

    assert {path.name for path in (tmp_path / "store" / "orbitmq").iterdir()} >= {
        "deleted_topics", "marks", "queue_locks", "reserved_offsets", "watermark",
    }  # fmt: skip
    assert _modes(tmp_path / "store") == ({"0700"}, {"0600"})
    rebuild(tmp_path / "store")
    assert _modes(tmp_path / "store") == ({"0700"}, {"0600"})


async def test_store_group_readable_lets_the_group_read_all_and_nobody_write(
    tmp_path: Path,
) -> None:
    await _write_every_file(tmp_path, storeGroupReadable="true")

    assert _modes(tmp_path / "store") == ({"0750"}, {"0640"})
    rebuild(tmp_path / "store")
    assert _modes(tmp_path / "store" / "consumequeue") == ({"0750"}, {"0640"})


async def test_folders_that_exist_keep_their_modes(tmp_path: Path) -> None:
    for name in ("store", "store/commitlog", "store/config"):
        (tmp_path / name).mkdir(mode=0o755)

    await _write_every_file(tmp_path)

    for name in ("store", "store/commitlog", "store/config"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o755
    assert _modes(tmp_path / "store" / "consumequeue") == ({"0700"}, {"0600"})
