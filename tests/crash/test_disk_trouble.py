"""Disks that fill up, cannot be written or fail to sync, and folders that are not in order."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import (
    DiskFullError,
    StoreDamagedError,
    StoreError,
    StoreFencedError,
    StoreFormatError,
)
from orbitmq.store.config import FlushMode
from orbitmq.store.log.draft import StoreDurability
from orbitmq.store.message_store import MessageStore
from tests.crash.agreement import check_agreement
from tests.crash.killing import REPOSITORY
from tests.crash.scenario import TOPIC, copy_as_killed, draft, number_of, small_config
from tests.leftovers import descriptors, no_descriptors_since, no_threads_since, threads

# A private mount needs a user namespace, except for root.
NAMESPACE = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]


def _can_mount(folder: Path) -> bool:
    if shutil.which("unshare") is None:
        return False
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(folder)]
    return subprocess.run([*NAMESPACE, *mount], check=False, capture_output=True).returncode == 0


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": "src:."},
    )


def _numbers(root: Path) -> list[int]:
    with MessageStore(small_config(root)) as store:
        queues = check_agreement(store, small_config(root))
    return sorted(number_of(m) for messages in queues.values() for m in messages)


@pytest.mark.parametrize("kind", ["tmpfs", "limit"])
def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-m", "tests.crash.full_disk", str(tmp_path)]
    if kind == "tmpfs" and _can_mount(tmp_path):
        mount = f"mount -t tmpfs -o size=700k tmpfs {tmp_path} && exec "
        result = _run([*NAMESPACE, "sh", "-c", mount + " ".join([*command, "tmpfs"])])
    else:
        result = _run([*command, "limit"])

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("kept ")


def test_a_killed_store_on_a_full_disk_opens_and_continues_once_there_is_room(
    tmp_path: Path,
) -> None:
    if not _can_mount(tmp_path):
        pytest.skip("needs a file system of its own")
    mount = f"mount -t tmpfs -o size=500k tmpfs {tmp_path} && exec "
    command = [sys.executable, "-m", "tests.crash.full_disk_start", str(tmp_path)]

    result = _run([*NAMESPACE, "sh", "-c", mount + " ".join(command)])

    assert result.returncode == 0, result.stderr
    assert "cannot write to the store: no room for" in result.stdout


@pytest.mark.parametrize(("case", "file"), [("killed", "/consumequeue/"), ("stopped", "/abort")])
def test_a_broker_starts_on_a_full_disk_and_accepts_messages_once_there_is_room(
    tmp_path: Path, case: str, file: str
) -> None:
    if not _can_mount(tmp_path):
        pytest.skip("needs a file system of its own")
    mount = f"mount -t tmpfs -o size=8m,nr_inodes=400 tmpfs {tmp_path} && exec "
    command = [sys.executable, "-m", "tests.crash.full_disk_broker", str(tmp_path), case]

    result = _run([*NAMESPACE, "sh", "-c", mount + " ".join(command)])

    assert result.returncode == 0, result.stderr
    assert "no room for" in result.stdout
    assert file in result.stdout


@pytest.mark.parametrize("folder", ["/index/", "/consumequeue/", "/commitlog/"])
@pytest.mark.parametrize("mode", list(FlushMode))
def test_a_killed_store_opens_though_log_queues_or_index_have_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, mode: FlushMode
) -> None:
    with MessageStore(small_config(tmp_path / "first")) as store:
        store._upkeep.stop()
        for number in range(150):
            store.put(draft(number, queue_id=number % 2, body_bytes=1000))
        copy_as_killed(store, tmp_path / "first", tmp_path / "killed")
    root = tmp_path / "killed"
    # The log has its room, unless RocketMQ wrote it: then its newest file is sparse.
    for name in ("posix_fallocate",) if folder == "/commitlog/" else ("posix_fallocate", "pwrite"):
        monkeypatch.setattr(f"os.{name}", _full(getattr(os, name), folder))
    with MessageStore(small_config(root, mode)) as store:
        store._upkeep.stop()
        for _ in range(2):
            with pytest.raises(DiskFullError, match=f"no room for .* bytes of .*{folder}"):
                store.put(draft(150))
            store.publish()
            store.request_flush()
        assert store.read(TOPIC, 0, 0).records, "what queues have can be read"
        monkeypatch.undo()

        store._upkeep.round()
        for number in range(150, 160):
            store.put(draft(number, queue_id=number % 2))

    assert _numbers(root) == list(range(160))


def _full(call: Callable[..., Any], folder: str) -> Callable[..., Any]:
    """The call, on a disk without room in one folder."""

    def fail(descriptor: int, *arguments: Any) -> Any:
        if folder in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        return call(descriptor, *arguments)

    return fail


def test_a_read_only_directory_is_an_error_that_says_so(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path)) as store:
        store.put(draft(0))
    opening = (
        "import sys; from pathlib import Path; from tests.crash.scenario import small_config\n"
        "from orbitmq.store.message_store import MessageStore\n"
        "from orbitmq.errors import StoreError\n"
        "try:\n    MessageStore(small_config(Path(sys.argv[1])))\n"
        "except StoreError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", opening, str(tmp_path)]
    if os.geteuid() == 0:
        # Root may write whatever the permissions say, but not to a read-only mount.
        mount = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path}"
        result = _run([*NAMESPACE, "sh", "-c", mount + ' && exec "$@"', "sh", *command])
    else:
        tmp_path.chmod(0o555)
        result = _run(command)
        tmp_path.chmod(0o755)

    assert result.returncode == 0, result.stderr
    assert "that is writable" in result.stdout
    assert _numbers(tmp_path) == [0]


def test_a_missing_middle_file_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path)) as store:
        for number in range(200):
            store.put(draft(number, body_bytes=1000))
    middle = tmp_path / "commitlog" / f"{65536:020d}"
    moved = tmp_path / "moved"
    middle.rename(moved)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    with pytest.raises(StoreFormatError, match=f"file {middle.name} is missing between"):
        MessageStore(small_config(tmp_path))

    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    moved.rename(middle)
    assert _numbers(tmp_path) == list(range(200))


def test_a_missing_last_file_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path)) as store:
        for number in range(100):
            store.put(draft(number, body_bytes=1000))
    last = tmp_path / "commitlog" / f"{65536:020d}"
    last.rename(tmp_path / "moved")

    with pytest.raises(StoreDamagedError, match=f"{last.name} is missing"):
        MessageStore(small_config(tmp_path))

    (tmp_path / "moved").rename(last)
    assert _numbers(tmp_path) == list(range(100))


@pytest.mark.parametrize("name", ["commitlog/notes.txt", "index/notes", "consumequeue/numbers/0/x"])
def test_a_foreign_file_is_named(tmp_path: Path, name: str) -> None:
    with MessageStore(small_config(tmp_path)) as store:
        store.put(draft(0))
    (tmp_path / name).write_text("what is this?")

    with pytest.raises(StoreFormatError, match=name):
        MessageStore(small_config(tmp_path))

    (tmp_path / name).unlink()
    assert _numbers(tmp_path) == [0]


def test_a_second_process_is_kept_out_and_the_first_continues(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path)) as store:
        store.put(draft(0))
        result = _run([sys.executable, "-m", "tests.crash.appender", str(tmp_path), "SYNC_FLUSH"])
        store.put(draft(1))

    assert result.returncode == 1
    assert "StoreLockedError" in result.stderr
    assert "is in use by another process" in result.stderr
    assert _numbers(tmp_path) == [0, 1]


class FailingSync:
    """`os.fdatasync` that fails on demand for the files of one folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._sync = os.fdatasync
        self.fails = False
        self.failed = threading.Event()

    def __call__(self, descriptor: int) -> None:
        if self.fails and self._folder in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            self.failed.set()
            raise OSError(errno.EIO, "Input/output error")
        self._sync(descriptor)


def _put_until_it_fails(store: MessageStore) -> None:
    while True:
        store.put(draft(99))
        store.request_flush()


@pytest.mark.parametrize("mode", list(FlushMode))
def test_a_failed_sync_of_the_log_fences_the_store_until_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: FlushMode
) -> None:
    sync = FailingSync("/commitlog/")
    monkeypatch.setattr("os.fdatasync", sync)
    store = MessageStore(small_config(tmp_path, mode))
    for number in range(10):
        store.put(draft(number))
    sync.fails = True
    with pytest.raises(StoreFencedError, match="nothing more is acknowledged"):
        _put_until_it_fails(store)
    sync.fails = False

    flushed, visible = store.flushed, store.visible
    with pytest.raises(StoreFencedError):
        store.put(draft(11))
    with pytest.raises(StoreFencedError):
        store.append(draft(11))
    store.request_flush()
    assert store.read(TOPIC, 0, 0, 10).records, "what was there can still be read"
    store.close()

    assert (store.flushed, store.visible) == (flushed, visible)
    assert (tmp_path / "abort").exists()
    assert _numbers(tmp_path)[:10] == list(range(10))


def test_a_failed_sync_of_a_queue_fences_the_store_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = FailingSync("/consumequeue/")
    monkeypatch.setattr("os.fdatasync", sync)
    store = MessageStore(small_config(tmp_path))
    sync.fails = True
    store.put(draft(0))
    assert sync.failed.wait(60)

    with pytest.raises(StoreFencedError):
        _put_until_it_fails(store)
    sync.fails = False
    store.close()

    assert (tmp_path / "abort").exists()
    assert 0 in _numbers(tmp_path)


def test_recovery_rewrites_what_the_system_may_count_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = FailingSync("/commitlog/")
    monkeypatch.setattr("os.fdatasync", sync)
    store = MessageStore(small_config(tmp_path))
    first = store.put(draft(0))
    sync.fails = True
    with pytest.raises(StoreFencedError):
        store.put(draft(1))
    sync.fails = False
    store.close()
    written: list[tuple[int, int]] = []
    pwrite = os.pwrite

    def spy(descriptor: int, content: bytes, at: int) -> int:
        if "/commitlog/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            written.append((at, at + len(content)))
        return pwrite(descriptor, content, at)

    monkeypatch.setattr("os.pwrite", spy)
    with MessageStore(small_config(tmp_path)) as store:
        assert store.end_of(TOPIC, 0) == 2

        assert written == [(first.end, store.log_end)]


def test_a_put_whose_flush_takes_too_long_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    sync = os.fdatasync
    store = MessageStore(replace(small_config(tmp_path), flush_timeout_ms=1))

    def slow(descriptor: int) -> None:
        released.wait(60)
        sync(descriptor)

    with store:
        monkeypatch.setattr("os.fdatasync", slow)
        receipt = store.put(draft(0))
        hidden = store.end_of(TOPIC, 0)
        released.set()
        store._flusher.wait(receipt.end, None)

        assert receipt.durability is StoreDurability.DISK_TIMEOUT
        assert hidden == 0
        assert store.end_of(TOPIC, 0) == 1


def test_an_opening_that_fails_half_way_releases_everything(tmp_path: Path) -> None:
    with MessageStore(small_config(tmp_path)) as store:
        for number in range(100):
            store.put(draft(number, body_bytes=1000))
    (tmp_path / "index" / "notes").write_text("x")
    before, threads_before = descriptors(tmp_path), threads()

    for _ in range(3):
        with pytest.raises(StoreError):
            MessageStore(small_config(tmp_path))

    no_descriptors_since(before, tmp_path)
    no_threads_since(threads_before)
    (tmp_path / "index" / "notes").unlink()
    assert _numbers(tmp_path) == list(range(100))
