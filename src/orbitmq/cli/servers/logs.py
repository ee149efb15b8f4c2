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

# Clients can make names and reasons as long as a header, as often as they like.
LINE_LENGTH_MAX: Final = 4000


class OneLine(logging.Formatter):
    """Writes each event on one line of bounded length; only a traceback may follow it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's own name
        """Write the line, with control characters made visible."""
        line = super().formatMessage(record)
        if len(line) > LINE_LENGTH_MAX:
            line = f"{line[:LINE_LENGTH_MAX]}… ({len(line)} characters)"
        return line.translate(_VISIBLE)

    def formatException(self, ei: object) -> str:  # noqa: N802  # logging's own name
        """Write a traceback; its last line may quote what a client sent."""
        lines = super().formatException(ei).splitlines()  # type: ignore[arg-type]  # logging's tuple
        return "\n".join(line[:LINE_LENGTH_MAX] for line in lines)


def log_to_stderr(level: LogLevel) -> None:
    """Write one line per event to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
