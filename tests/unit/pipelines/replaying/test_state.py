"""The folder of a replay: what was sent stays known, whatever ends the process."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from orbitmq.errors import SettingsError
from orbitmq.pipelines.replaying.state import (
    PLAN,
    PROGRESS,
    REMEMBERED_MS,
    default_folder,
    held,
    peek,
)
from tests.unit.pipelines.replaying.test_plan import plan

NAME = "monday"


def test_a_replay_resumes_after_the_last_chunk_that_was_noted(tmp_path: Path) -> None:
    with held(tmp_path, NAME) as first:
        first.start(plan())
        first.begin(100)
        first.end(12, 110)
        first.begin(120)

    with held(tmp_path, NAME) as second:
        found = second.progress
        assert second.plan == plan()
        assert (found.chunks, found.rows, found.begun_ms) == (1, 12, 120)
        # It was begun at first then, so that is when brokers may have got it.
        second.begin(900)
        assert second.progress.begun_ms == 120
        second.end(8, 910)

    third = peek(tmp_path, NAME)
    assert third is not None
    assert (third.is_finished, third.progress.rows, third.progress.finished_ms) == (True, 20, 910)


def test_nothing_is_known_of_a_replay_before_its_plan_is_stored(tmp_path: Path) -> None:
    assert peek(tmp_path, NAME) is None

    with held(tmp_path, NAME) as state:
        assert state.plan is None

    assert peek(tmp_path, NAME) is None


def test_a_plan_may_have_messages_in_it_so_only_its_user_reads_it(tmp_path: Path) -> None:
    with held(tmp_path, NAME) as state:
        state.start(plan())

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / NAME).iterdir()}
    assert set(modes) >= {PLAN, PROGRESS, "lock"}
    assert set(modes.values()) == {0o600}


def test_a_replay_runs_once_at_a_time(tmp_path: Path) -> None:
    with (
        held(tmp_path, NAME),
        pytest.raises(SettingsError, match="replay monday is running"),
        held(tmp_path, NAME),
    ):
        pass
    with held(tmp_path, "tuesday"), held(tmp_path, NAME):
        pass


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        (PLAN, "{", "cannot be read"),
        (PLAN, '{"version": 2}', "cannot be read"),
        (PROGRESS, "[]", "cannot be read"),
        (PROGRESS, '{"digest": "of another plan"}', "is not of the plan beside it"),
    ],
)
def test_a_damaged_folder_is_not_taken_for_a_new_replay(
    tmp_path: Path, file: str, content: str, reason: str
) -> None:
    with held(tmp_path, NAME) as state:
        state.start(plan())
    (tmp_path / NAME / file).write_text(content)

    with pytest.raises(SettingsError, match=reason), held(tmp_path, NAME):
        pass


def test_a_missing_progress_file_is_not_taken_for_nothing_sent(tmp_path: Path) -> None:
    with held(tmp_path, NAME) as state:
        state.start(plan())
    (tmp_path / NAME / PROGRESS).unlink()

    with pytest.raises(SettingsError, match="cannot be read"), held(tmp_path, NAME):
        pass


def test_a_chunk_begun_long_ago_is_not_sent_again_without_a_question(tmp_path: Path) -> None:
    with held(tmp_path, NAME) as state:
        state.start(plan())
        before = state.progress.needs_proof(10 * REMEMBERED_MS)
        state.begin(1_000)

        assert not before
        assert not state.progress.needs_proof(1_000 + REMEMBERED_MS)
        assert state.progress.needs_proof(1_001 + REMEMBERED_MS)


def test_plans_are_where_the_system_keeps_the_state_of_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    assert default_folder() == tmp_path / "orbitmq" / "replays"
