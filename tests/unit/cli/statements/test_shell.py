"""The shell: when Enter runs a statement, what Tab offers, what is remembered."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from orbitmq.cli.statements import shell
from orbitmq.cli.statements.completion import suggestions
from orbitmq.errors import OrbitError

TOPICS = ["orders", "order-lines", "%DLQ%billing", "TBW102"]


@pytest.mark.parametrize(
    ("text", "is_complete"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1;\nSELECT 2", False),
        ("SELECT ';", False),
        ("\\d orders", True),
        ("quit", True),
    ],
)
def test_enter_runs_what_a_semicolon_ends(text: str, *, is_complete: bool) -> None:
    assert shell.is_complete(text) is is_complete


def test_tab_offers_tables_where_one_is_due() -> None:
    assert suggestions("SELECT * FROM ord", TOPICS) == ("ord", ["orders", "`order-lines`"])
    assert suggestions("SELECT * FROM `%D", TOPICS) == ("`%D", ["`%DLQ%billing`"])
    assert suggestions("SELECT 1 FROM a JOIN system.la", TOPICS)[1] == ["system.lag"]
    assert suggestions("\\d sys", TOPICS)[1][0] == "system.topics"


def test_tab_offers_columns_of_the_tables_that_are_named() -> None:
    assert suggestions("SELECT * FROM orders WHERE storeT", TOPICS)[1] == ["storeTimestamp"]
    assert suggestions("SELECT * FROM system.lag WHERE comm", TOPICS)[1] == ["committedOffset"]
    assert "HAVING" in suggestions("SELECT tags FROM orders havi", TOPICS)[1]


def test_the_statements_of_a_text_run_until_one_is_wrong() -> None:
    shown: list[str] = []

    with pytest.raises(OrbitError, match="DROP"):
        shell.run_statements(
            "SELECT 1; SELECT ';' ; DROP TABLE x; SELECT 2", lambda one: shown.append(one.sql)
        )

    assert shown == ["SELECT 1", "SELECT ';'"]


def test_the_history_is_private_and_bounded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = shell.history_path()
    path.parent.mkdir()
    path.write_text("\n# then\n+SELECT 1;\n" * 100_000)

    history = shell.open_history()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_size < 1 << 20
    assert set(history.load_history_strings()) == {"SELECT 1;"}
