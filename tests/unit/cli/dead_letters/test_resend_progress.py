"""The file that says how far a resend has come."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.cli.dead_letters.resend_progress import ResendProgress
from orbitmq.errors import SettingsError
from tests.unit.client.aio.received import received

PLAN = {"group": "billing", "to": "", "ids": []}


def test_a_letter_that_was_begun_only_may_have_been_sent(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    first, second = received(0), received(1)
    with ResendProgress.open(file) as noted:
        noted.start(PLAN)
        noted.begin(first)
        noted.end("copy-1")
        noted.begin(second)

    with ResendProgress.open(file) as again:
        assert (again.plan, again.sent) == (PLAN, 1)
        assert again.has(first)
        assert not again.has(second)
        assert again.unsure == second.message_id


@pytest.mark.parametrize("kept", range(1, 200, 7))
def test_a_line_that_was_cut_off_counts_as_not_written(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "progress"
    letter = received(0)
    with ResendProgress.open(file) as noted:
        noted.start(PLAN)
        noted.begin(letter)
        noted.end("copy-1")
    whole = file.read_bytes()
    file.write_bytes(whole[: min(kept, len(whole) - 1)])

    with ResendProgress.open(file) as again:
        assert again.sent == 0
        assert not again.has(letter)
        if not again.plan:
            again.start(PLAN)
        again.begin(letter)
        again.end("copy-1")
    with ResendProgress.open(file) as last:
        assert last.sent == 1
        assert last.has(letter)


def test_a_file_of_something_else_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    for content in ('{"message_id": "1"}\n', "[]\n", "hello\n"):
        file.write_text(content)
        with pytest.raises(SettingsError, match="no progress of a resend"):
            ResendProgress.open(file)
        assert file.read_text() == content
    with pytest.raises(SettingsError, match="cannot write"):
        ResendProgress.open(tmp_path)


def test_a_file_in_use_is_refused(tmp_path: Path) -> None:
    with (
        ResendProgress.open(tmp_path / "progress"),
        pytest.raises(SettingsError, match="another command is sending"),
    ):
        ResendProgress.open(tmp_path / "progress")
