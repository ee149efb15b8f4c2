"""Lines of a server's log."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from orbitmq.cli.servers.logs import LINE_LENGTH_MAX, OneLine


def test_a_line_shows_control_characters_and_is_cut_where_clients_made_it_long() -> None:
    record = logging.LogRecord("n", logging.INFO, "p", 1, "a\nb %s", ("x" * 1_000_000,), None)

    line = OneLine("%(message)s").format(record)

    assert line.startswith("a\\x0ab xxx")
    assert line.endswith("x… (1000004 characters)")
    assert len(line) < LINE_LENGTH_MAX + 100


def test_a_traceback_is_kept_but_for_long_lines() -> None:
    record = logging.LogRecord("n", logging.INFO, "p", 1, "m", None, None)
    try:
        Path("x" * 1_000_000).stat()
    except OSError:
        record.exc_info = sys.exc_info()

    lines = OneLine("%(message)s").format(record).splitlines()

    assert lines[:2] == ["m", "Traceback (most recent call last):"]
    assert max(map(len, lines)) == LINE_LENGTH_MAX
