"""The folder of a replay: its plan, and how far it is.

    STATE/ID/plan.json       what it sends; never changes
    STATE/ID/progress.json   how many chunks are sent, and since when the next one is being sent
    STATE/ID/lock            locked by the process that sends

Crash: a chunk is noted before it is sent, and noted again once it is. After a kill in between, the next
run sends it again under the same name, so that brokers drop what they have. That is safe while they
remember the name; `needs_proof` says when they may have forgotten it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.disk import make_folder, open_file, replace_file
from orbitmq.errors import SettingsError
from orbitmq.pipelines.replaying.plan import Plan

PLAN: Final = "plan.json"
PROGRESS: Final = "progress.json"
_LOCK: Final = "lock"
# Brokers remember a finished batch write for a week, unless their `batchWriteHoursMax` says less.
REMEMBERED_MS: Final = 6 * 24 * 3_600_000


class Progress(msgspec.Struct, kw_only=True):
    """How far a replay is."""

    # Of the plan that it belongs to.
    digest: str
    # Chunks that are sent, and the rows that they became.
    chunks: int = 0
    rows: int = 0
    # When the next chunk was first begun; 0 if it was not.
    begun_ms: int = 0
    # When the last chunk was sent; 0 before.
    finished_ms: int = 0

    def needs_proof(self, now_ms: int) -> bool:
        """Whether a chunk was begun so long ago that brokers may have forgotten it."""
        return self.begun_ms > 0 and now_ms - self.begun_ms > REMEMBERED_MS


@dataclass(slots=True)
class ReplayState:
    """A replay in its folder, held by this process."""

    folder: Path
    plan: Plan | None
    progress: Progress

    def start(self, plan: Plan) -> None:
        """Store the plan, before anything is sent."""
        self.plan = plan
        self.progress = Progress(digest=plan.digest)
        # In this order: a plan without progress is one that has sent nothing.
        _write(self.folder / PROGRESS, self.progress)
        _write(self.folder / PLAN, plan)

    def begin(self, now_ms: int) -> None:
        """Note that the next chunk is about to be sent."""
        # The first time counts: that is when brokers may have got it.
        if not self.progress.begun_ms:
            self.progress.begun_ms = now_ms
            self._save()

    def end(self, rows: int, now_ms: int) -> None:
        """Note that the next chunk is sent."""
        assert self.plan is not None
        self.progress.chunks += 1
        self.progress.rows += rows
        self.progress.begun_ms = 0
        if self.progress.chunks == len(self.plan.chunks):
            self.progress.finished_ms = now_ms
        self._save()

    @property
    def is_finished(self) -> bool:
        """Whether all is sent."""
        return self.progress.finished_ms > 0

    def _save(self) -> None:
        _write(self.folder / PROGRESS, self.progress)


def default_folder() -> Path:
    """Where replays of this user are, unless told otherwise."""
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "orbitmq" / "replays"


def peek(root: Path, name: str) -> ReplayState | None:
    """A replay as it is now, for a look; None if nothing of it was sent."""
    folder = root / name
    return _read(folder) if (folder / PLAN).exists() else None


@contextmanager
def held(root: Path, name: str) -> Iterator[ReplayState]:
    """Hold the folder of a replay; raises SettingsError if another process does."""
    folder = root / name
    try:
        make_folder(folder)
        lock = open_file(folder / _LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise SettingsError(
            f"replay {name} cannot keep its plan in {folder}: {error.strerror}",
            hint="name another folder: --state DIR",
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SettingsError(
                f"replay {name} is running: its plan in {folder} is in use",
                hint="wait for its end, or stop it with Ctrl-C",
            ) from error
        yield _read(folder)
    finally:
        os.close(lock)


def _read(folder: Path) -> ReplayState:
    if not (folder / PLAN).exists():
        return ReplayState(folder, None, Progress(digest=""))
    try:
        plan = msgspec.json.decode((folder / PLAN).read_bytes(), type=Plan)
        progress = msgspec.json.decode((folder / PROGRESS).read_bytes(), type=Progress)
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(
            f"{folder} cannot be read: {error}",
            hint="restore it from a backup; another --id sends everything again",
        ) from error
    if progress.digest != plan.digest or progress.chunks > len(plan.chunks):
        raise SettingsError(
            f"{folder / PROGRESS} is not of the plan beside it",
            hint="restore both from a backup; another --id sends everything again",
        )
    return ReplayState(folder, plan, progress)


def _write(path: Path, content: msgspec.Struct) -> None:
    replace_file(path, msgspec.json.encode(content))
