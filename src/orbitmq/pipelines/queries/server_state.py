"""The state of the background server: its process, its port, its token.

One folder per user and Python environment, which nobody else may enter:

    server.lock   held by the server while it lives
    server.json   its process, port and token, mode 0600
    start.lock    held by whoever starts or stops it
    server.log    what Spark had to say

Crash: a dead server holds no lock, so its state is known to be stale, whatever process has its
number now.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.clock import SystemClock
from orbitmq.errors import QueryError, SettingsError
from orbitmq.spark.sessions.java_runtime import cache_folder
from orbitmq.version import __version__

_PRIVATE: Final = 0o700
_SECRET: Final = 0o600
_STATE_BYTES_MAX: Final = 64 * 1024
LOOK_S: Final = 0.1
_LOOKS_MAX_MS: Final = 5_000


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """What a client must know to use the server."""

    pid: int
    port: int
    token: str
    # Of what it runs; another one is not used.
    versions: list[str]
    idle_ms: int
    started_ms: int


def versions_here() -> list[str]:
    """What a server must have in common with this process."""
    python = ".".join(map(str, sys.version_info[:3]))
    return [f"orbitmq {__version__}", f"pyspark {version('pyspark')}", f"Python {python}"]


def runtime_folder(environment: Mapping[str, str]) -> Path:
    """The folder of the server of this user and environment; it is made if it is not there."""
    named = environment.get("XDG_RUNTIME_DIR")
    parent = Path(named) / "orbitmq" if named else cache_folder(environment) / "run"
    name = hashlib.sha256(sys.prefix.encode()).hexdigest()[:16]
    folder = parent / f"sql-{name}"
    try:
        folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise SettingsError(
            f"cannot keep the state of Spark in {folder}: {error}",
            hint="set XDG_RUNTIME_DIR to a folder of yours, or run with --local",
        ) from error
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise SettingsError(
            f"{folder} is open to others, and the token of the server would be, too",
            hint=f"make it yours alone: chmod 700 {folder}",
        )
    return folder


class StateFolder:
    """The state folder of the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self._state = folder / "server.json"
        self._server_lock = folder / "server.lock"
        self._start_lock = folder / "start.lock"

    def running(self) -> ServerState | None:
        """The state of the server that runs; None if none does, or it is still starting."""
        if not self.is_held():
            return None
        try:
            with self._state.open("rb") as file:
                return msgspec.json.decode(file.read(_STATE_BYTES_MAX), type=ServerState)
        except (OSError, msgspec.MsgspecError):
            return None

    def write(self, state: ServerState) -> None:
        """Publish the state of this process, which holds the lock of the server."""
        new = self._state.with_suffix(".new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _SECRET), "wb") as file:
            file.write(msgspec.json.encode(state))
        new.replace(self._state)

    def forget(self) -> None:
        """Remove the state; only the server itself does."""
        self._state.unlink(missing_ok=True)

    def is_held(self) -> bool:
        """Whether a server lives, which may be starting or stopping."""
        with self._server_lock.open("a") as lock:
            return not _try_lock(lock.fileno())

    @contextmanager
    def as_server(self) -> Iterator[bool]:
        """Hold the lock of the server; False if another process keeps it."""
        with self._server_lock.open("a") as lock:
            # Somebody may just be looking whether it is held.
            yield _lock(lock.fileno(), Patience(_LOOKS_MAX_MS).wait)

    @contextmanager
    def as_starter(self, patience: Patience) -> Iterator[None]:
        """Hold the lock of those who start and stop it."""
        with self._start_lock.open("a") as lock:
            if not _lock(lock.fileno(), patience.wait):
                raise QueryError(
                    "another process has been starting Spark for too long",
                    hint=f"look at {self.log}",
                )
            yield


class Patience:
    """A time that is waited for, piece by piece."""

    def __init__(self, length_ms: float) -> None:
        self._clock = SystemClock()
        self._began_ms = self._clock.monotonic_ms()
        self._length_ms = length_ms
        self._never = threading.Event()

    @property
    def took_ms(self) -> float:
        """How long it has been."""
        return self._clock.monotonic_ms() - self._began_ms

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.took_ms >= self._length_ms

    def wait(self) -> bool:
        """Wait a moment; False if the time is over."""
        self._never.wait(LOOK_S)
        return not self.is_over


def _lock(file: int, wait: Callable[[], bool]) -> bool:
    while not _try_lock(file):
        if not wait():
            return False
    return True


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
