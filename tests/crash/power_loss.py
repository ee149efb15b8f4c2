"""A disk that can lose power: synced bytes survive, any other page may or may not.

A killed process keeps its page cache, so killing shows nothing of what a crash of the machine
does. Here `os.fdatasync` and `os.fsync` note what they make durable:

    a file      its bytes and its size
    a folder    the names in it

`capture` then builds what a disk could hold after power loss: the durable state, plus a random
choice of the pages, sizes, new names and deletions that were not synced. A page may also be there
in a state between, as `observe` saw it.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

PAGE_BYTES = 4096


class PowerLossDisk:
    """Watches the syncs below one folder."""

    def __init__(self, root: Path, rng: random.Random, *, honest: bool = True) -> None:
        self._root = root
        self.rng = rng
        # A dishonest disk forgets what it was asked to sync.
        self._honest = honest
        self._lock = threading.RLock()
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        self._between: dict[int, list[bytes]] = {}
        # The system reuses inode numbers; open files keep theirs.
        self._held: dict[int, int] = {}
        self._syncs = 0
        self._trap: tuple[int, Path, Callable[[], None]] | None = None
        self._adopt(root)

    # --- watching -----------------------------------------------------------------------------

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Record every sync of this process; nothing is really synced, which saves time."""
        with mock.patch("os.fdatasync", self._sync), mock.patch("os.fsync", self._sync):
            yield

    def lose_power_at(self, sync: int, target: Path, then: Callable[[], None]) -> None:
        """Capture into `target` at a sync to come, before or after it takes effect."""
        self._trap = (self._syncs + sync, target, then)

    @property
    def is_armed(self) -> bool:
        """Whether the trap is still waiting."""
        return self._trap is not None

    def observe(self) -> None:
        """Record the current content of files as one that the system may have written."""
        with self._lock:
            for path in self._root.rglob("*"):
                if path.is_file():
                    versions = self._between.setdefault(path.stat().st_ino, [])
                    versions.append(path.read_bytes())
                    del versions[:-3]

    def close(self) -> None:
        """Close the files held."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()

    def _sync(self, descriptor: int) -> None:
        with self._lock:
            self._syncs += 1
            trapped = self._trap is not None and self._syncs >= self._trap[0]
            early = trapped and self.rng.random() < 0.5
            if early:
                self._spring()
            if self._honest:
                self._note(descriptor)
            if trapped and not early:
                self._spring()

    def _spring(self) -> None:
        assert self._trap is not None
        _, target, then = self._trap
        self._trap = None
        then()
        self.capture(target)

    def _note(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = self._list(descriptor)
        else:
            self._hold(status.st_ino, descriptor)
            self._contents[status.st_ino] = os.pread(descriptor, status.st_size, 0)
            self._between.pop(status.st_ino, None)

    def _list(self, folder: int | Path) -> dict[str, int]:
        with os.scandir(folder) as entries:
            found = {entry.name: (entry.inode(), entry.is_file()) for entry in entries}
        for name, (inode, is_file) in found.items():
            if is_file and inode not in self._held:
                kind = {"dir_fd": folder} if isinstance(folder, int) else {}
                path = name if isinstance(folder, int) else folder / name
                descriptor = os.open(path, os.O_RDONLY, **kind)
                self._hold(inode, descriptor)
                os.close(descriptor)
        return {name: inode for name, (inode, _) in found.items()}

    def _hold(self, inode: int, descriptor: int) -> None:
        if inode not in self._held:
            self._held[inode] = os.dup(descriptor)

    def _adopt(self, folder: Path) -> None:
        """Count what exists at the beginning as durable."""
        self._names[folder.stat().st_ino] = self._list(folder)
        for path in folder.iterdir():
            if path.is_dir():
                self._adopt(path)
            else:
                self._contents[path.stat().st_ino] = path.read_bytes()

    def kill(self, target: Path) -> PowerLossDisk:
        """Copy what a killed process leaves: all of it readable, but no more of it durable."""
        with self._lock:
            self._build(self._root, target, 0.0)
            after = PowerLossDisk(target, self.rng)
            after._forget(self, self._root, target)
        return after

    def _forget(self, before: PowerLossDisk, old: Path, new: Path) -> None:
        """Take back from `new` what was not durable in `old`."""
        durable = before._names.get(old.stat().st_ino, {})
        names = self._names[new.stat().st_ino]
        for name, inode in list(names.items()):
            try:
                old_inode = (old / name).stat().st_ino
            except FileNotFoundError:
                # A temporary file of another thread, renamed meanwhile.
                old_inode = -1
            if durable.get(name) != old_inode:
                del names[name]
            if (new / name).is_dir():
                self._forget(before, old / name, new / name)
            else:
                self._contents[inode] = before._contents.get(old_inode, b"")

    # --- losing power -------------------------------------------------------------------------

    def capture(self, target: Path) -> None:
        """Build one state that the disk may be in after power loss."""
        with self._lock:
            # Sometimes everything that can be lost is lost, sometimes nothing.
            lost_share = self.rng.choice((0.0, 0.2, 0.5, 0.8, 1.0))
            self._build(self._root, target, lost_share)

    def _build(self, folder: Path, target: Path, lost_share: float) -> None:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        durable = self._names.get(folder.stat().st_ino, {})
        present = self._list(folder)
        for name in sorted(durable.keys() | present.keys()):
            now, before = present.get(name), durable.get(name)
            chosen = before if now != before and self.rng.random() < lost_share else now
            if chosen is None:
                continue
            if (folder / name).is_dir() and chosen == now:
                self._build(folder / name, target / name, lost_share)
            elif chosen in self._held:
                (target / name).write_bytes(self._content(chosen, lost_share))

    def _content(self, inode: int, lost_share: float) -> bytes:
        descriptor = self._held[inode]
        present = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        durable = self._contents.get(inode, b"")
        size = len(durable) if self.rng.random() < lost_share else len(present)
        versions = [*self._between.get(inode, ()), present]
        out = bytearray()
        for at in range(0, size, PAGE_BYTES):
            lost = self.rng.random() < lost_share
            version = durable if lost else self.rng.choice(versions)
            out += version[at : at + PAGE_BYTES].ljust(PAGE_BYTES, b"\0")
        return bytes(out[:size])
