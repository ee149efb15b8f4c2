"""Replacing a file as a whole, and blocking work beside an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.clock import settle
from orbitmq.disk import (
    GROUP_READABLE,
    PRIVATE,
    FileModes,
    delete_leftovers,
    make_folder,
    modes_like,
    off_loop,
    open_file,
    replace_file,
    sync_folder,
    to_end_off_loop,
)

# Replaces the first argument, a file, with the second, a text; optionally dies at the first sync.
REPLACING = """
import os, signal, sys
from pathlib import Path
from orbitmq.disk import replace_file
if sys.argv[3:] == ["killed"]:
    os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
replace_file(Path(sys.argv[1]), sys.argv[2].encode())
"""


def replace_in_a_child(path: Path, content: str, *more: str) -> int:
    command = [sys.executable, "-c", REPLACING, str(path), content, *more]
    return subprocess.run(command, check=False, timeout=150).returncode


def test_the_new_content_replaces_the_old_which_is_kept_as_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_bytes(b"old")
    path.chmod(0o640)

    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert (tmp_path / "namesrv.conf.bak").read_bytes() == b"old"
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "namesrv.conf.bak").stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.iterdir())) == 2


def test_a_new_file_is_created_with_its_folders_and_only_its_owner_can_read_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "etc" / "namesrv.conf"

    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target = tmp_path / "real.conf"
    target.write_bytes(b"old")
    link = tmp_path / "link.conf"
    link.symlink_to(target)

    replace_file(link, b"new")

    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_a_failure_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_bytes(b"old")
    (tmp_path / "namesrv.conf.bak").mkdir()

    with pytest.raises(OSError, match=r"namesrv\.conf"):
        replace_file(path, b"new")

    assert path.read_bytes() == b"old"
    assert sorted(found.name for found in tmp_path.iterdir()) == [
        "namesrv.conf",
        "namesrv.conf.bak",
    ]


@pytest.mark.parametrize("old", [None, b"old"], ids=["a new file", "a file with a copy"])
def test_leftovers_of_a_killed_process_are_deleted_by_the_next(
    tmp_path: Path, old: bytes | None
) -> None:
    path = tmp_path / "kvConfig.json"
    if old is not None:
        path.write_bytes(old)
    assert replace_in_a_child(path, "lost", "killed") == -signal.SIGKILL
    assert len([found for found in tmp_path.iterdir() if found.name.endswith(".tmp")]) == 1

    assert replace_in_a_child(path, "new") == 0

    assert path.read_bytes() == b"new"
    expected = [path] if old is None else [path, tmp_path / "kvConfig.json.bak"]
    assert sorted(tmp_path.iterdir()) == expected


def test_only_old_temporary_files_of_the_same_file_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    strangers = [
        ".kvConfig.json.original",
        ".kvConfig.json.swp",
        ".kvConfig.json.ABCDEFGH.tmp",
        ".kvConfig.json.abcdefghi.tmp",
        ".kvConfig_json.abcdefgh.tmp",
        ".other.json.abcdefgh.tmp",
        "kvConfig.json.abcdefgh.tmp",
    ]
    ours = [".kvConfig.json.abcd_123.tmp", ".kvConfig.json.bak.abcd_123.tmp"]
    for name in (*strangers, *ours):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1))
    young = tmp_path / ".kvConfig.json.young_12.tmp"
    young.touch()
    folder = tmp_path / ".kvConfig.json.folder_1.tmp"
    folder.mkdir()
    os.utime(folder, (1, 1))

    delete_leftovers(path)

    found = sorted(found.name for found in tmp_path.iterdir())
    assert found == sorted([*strangers, young.name, folder.name])


def test_deleting_leftovers_needs_no_folder_and_never_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    delete_leftovers(tmp_path / "none" / "kvConfig.json")
    assert not caplog.records
    (tmp_path / "file").touch()

    delete_leftovers(tmp_path / "file" / "kvConfig.json")

    assert "leftover temporary file not deleted" in caplog.text


async def test_blocking_work_runs_in_another_thread_and_its_outcome_comes_back() -> None:
    def fail(*, reason: str) -> None:
        raise OSError(reason)

    assert await off_loop(threading.get_ident) != threading.get_ident()
    with pytest.raises(OSError, match="disk is full"):
        await off_loop(fail, reason="disk is full")


async def test_a_cancelled_caller_does_not_wait_for_its_work() -> None:
    released = threading.Event()
    work = asyncio.create_task(off_loop(released.wait))
    await settle()

    work.cancel()
    await asyncio.wait({work})

    assert work.cancelled()
    released.set()


async def test_a_cancelled_caller_waits_for_work_to_its_end_if_it_said_so() -> None:
    may_end = threading.Event()
    ended: list[bool] = []

    def work() -> None:
        may_end.wait(60)
        ended.append(True)

    caller = asyncio.create_task(to_end_off_loop(work))
    await settle(5)
    for _ in range(2):
        caller.cancel()
        await settle(5)
    assert not caller.done()

    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == [True]


async def test_work_to_its_end_returns_its_outcome() -> None:
    assert await to_end_off_loop(int, "7") == 7
    with pytest.raises(ValueError, match="invalid literal"):
        await to_end_off_loop(int, "x")


def test_a_folder_is_made_with_its_parents_and_every_name_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def spy(number: int) -> None:
        synced.append(Path(f"/proc/self/fd/{number}").readlink().name)
        fsync(number)

    monkeypatch.setattr("os.fsync", spy)
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    sync_folder(tmp_path / "a")

    assert synced == [tmp_path.name, "a", "a"]


@pytest.fixture(params=[0o000, 0o022, 0o077], ids="umask {:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("modes", [PRIVATE, GROUP_READABLE], ids=["private", "group"])
def test_new_files_and_folders_get_their_modes_whatever_the_umask(
    tmp_path: Path, modes: FileModes
) -> None:
    folder = tmp_path / "a" / "b"

    make_folder(folder, modes)
    os.close(open_file(folder / "opened", os.O_RDWR | os.O_CREAT, modes))
    replace_file(folder / "replaced", b"x", modes)

    for path in (folder.parent, folder):
        assert path.stat().st_mode & 0o777 == modes.folder
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == modes.file
    assert modes_like(folder) == modes


def test_existing_files_and_folders_keep_their_modes(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o755)
    (folder / "file").touch(mode=0o644)

    make_folder(folder)
    os.close(open_file(folder / "file", os.O_RDWR | os.O_CREAT))
    replace_file(folder / "file", b"x")

    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / "file").stat().st_mode & 0o777 == 0o644
