"""The state of the background server: private, and known to be stale if the server is dead."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.errors import QueryError, SettingsError
from orbitmq.pipelines.queries.server_state import (
    Patience,
    ServerState,
    StateFolder,
    runtime_folder,
    versions_here,
)

STATE = ServerState(
    pid=os.getpid(), port=1, token="t", versions=versions_here(), idle_ms=1, started_ms=1
)
SECONDS_MAX = 60


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return StateFolder(runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}))


def test_only_its_user_can_read_the_state(state: StateFolder) -> None:
    state.write(STATE)

    assert stat.S_IMODE(state.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((state.folder / "server.json").stat().st_mode) == 0o600


def test_a_folder_that_is_open_to_others_is_refused(state: StateFolder) -> None:
    state.folder.chmod(0o755)

    with pytest.raises(SettingsError, match="open to others"):
        runtime_folder({"XDG_RUNTIME_DIR": str(state.folder.parent.parent)})


def test_the_state_of_a_living_server_is_found(state: StateFolder) -> None:
    with state.as_server() as is_alone:
        state.write(STATE)

        assert is_alone
        assert StateFolder(state.folder).running() == STATE
    assert StateFolder(state.folder).running() is None


def test_the_state_of_a_killed_server_is_stale(state: StateFolder) -> None:
    program = f"""
import sys
from pathlib import Path
from orbitmq.pipelines.queries.server_state import StateFolder
with StateFolder(Path({str(state.folder)!r})).as_server():
    print("held", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        state.write(STATE)
        found = state.running()
        server.kill()
        server.wait(SECONDS_MAX)

    # Its file is there, and the process of its number lives: it is this one.
    assert found == STATE
    assert state.running() is None


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"pid": "x"}'])
def test_a_damaged_state_is_none(state: StateFolder, content: bytes) -> None:
    with state.as_server():
        (state.folder / "server.json").write_bytes(content)

        assert state.running() is None


def test_one_starts_the_server_and_the_other_waits(state: StateFolder) -> None:
    other = StateFolder(state.folder)

    with (
        state.as_starter(Patience(0)),
        pytest.raises(QueryError, match="starting Spark for too long"),
        other.as_starter(Patience(1)),
    ):
        pass
    with other.as_starter(Patience(0)):
        pass
