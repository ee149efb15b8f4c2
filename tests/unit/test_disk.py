"""Replacing a file as a whole, and blocking work beside an event loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from orbitmq.clock import settle
from orbitmq.disk import off_loop, replace_file


def test_the_new_content_is_there_and_the_old_one_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_bytes(b"old")
    path.chmod(0o640)

    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert (tmp_path / "namesrv.conf.bak").read_bytes() == b"old"
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "namesrv.conf.bak").stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.iterdir())) == 2


def test_a_new_file_is_made_with_its_folders_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "namesrv.conf"

    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
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
