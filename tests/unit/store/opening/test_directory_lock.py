"""One writer for a directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.errors import StoreError, StoreLockedError
from orbitmq.store.opening.directory_lock import DirectoryLock

TAKE_AS_JAVA_DOES = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    sys.exit(7)
"""


def _other_process_gets(path: Path) -> bool:
    command = [sys.executable, "-c", TAKE_AS_JAVA_DOES, str(path)]
    return subprocess.run(command, check=False).returncode == 0


def test_the_lock_is_the_one_java_takes(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path / "new" / "store")
    path = tmp_path / "new" / "store" / "lock"

    # Reading the file also closes it, which must not release the lock.
    assert path.read_bytes() == b"lock"
    assert not _other_process_gets(path)
    lock.release()
    assert _other_process_gets(path)


def test_a_directory_locked_by_another_process_is_refused_and_no_descriptor_is_left(
    tmp_path: Path,
) -> None:
    holding = "import sys\n" + TAKE_AS_JAVA_DOES + "print('held', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(tmp_path / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"held\n"

        descriptors = sorted(path.name for path in Path("/proc/self/fd").iterdir())

        with pytest.raises(StoreLockedError, match="in use by another process"):
            DirectoryLock(tmp_path)

        assert sorted(path.name for path in Path("/proc/self/fd").iterdir()) == descriptors
        other.stdin.close()


def test_the_same_process_is_kept_out_too_and_does_not_loosen_the_lock(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)

    with pytest.raises(StoreLockedError, match="in use by this process"):
        DirectoryLock(tmp_path)

    assert not _other_process_gets(tmp_path / "lock")
    lock.release()
    lock.release()
    DirectoryLock(tmp_path).release()


def test_a_directory_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")

    with pytest.raises(StoreError, match="as a store"):
        DirectoryLock(tmp_path / "file" / "store")
