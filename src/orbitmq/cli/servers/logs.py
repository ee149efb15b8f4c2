"""Logging for servers that the command line starts."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Final


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


# Logged names come from clients, and must not be able to start a log line of their own.
_VISIBLE: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F, 0x85, 0x2028, 0x2029)}


class OneLine(logging.Formatter):
    """Writes each event on one line; only a traceback may follow it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's own name
        """Write the line, with control characters made visible."""
        return super().formatMessage(record).translate(_VISIBLE)


def log_to_stderr(level: LogLevel) -> None:
    """Write one line per event to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
