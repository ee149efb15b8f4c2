"""The same command lines given to mqadmin and to ours, and what they print, parsed."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from typer.testing import CliRunner

from orbitmq.cli.main import command_for
from orbitmq.cli.mqadmin.names import as_our_command
from orbitmq.clock import SystemClock
from tests.interop.drivers import JavaDriver
from tests.interop.python_trials import PATIENCE_MS, Trial
from tests.interop.timeouts import CLIENT_TIMEOUT_S
from tests.waiting import beside

_CLOCK = SystemClock()
_PRINTED_MESSAGE = re.compile(
    r"MSGID: (\w+) MessageExt \[brokerName=([^,]+), queueId=(\d+),.* queueOffset=(\d+),"
    r".*BODY: ?(.*)"
)
# The environment of our commands: a server whose machine stands still for a while has not failed.
PATIENT = {"ORBITMQ_MQ_CLIENT_API_TIMEOUT": str(PATIENCE_MS)}
Row = dict[str, Any]
Value = TypeVar("Value")


class CommandLines:
    """mqadmin and our command line at one cluster."""

    def __init__(self, trial: Trial, drivers: Callable[[str], JavaDriver]) -> None:
        self.site = trial.site
        line = self.site.line if self.site.line != "ours" else "v5"
        self._driver = drivers(line)

    @property
    def tool_line(self) -> str:
        """The release line of mqadmin."""
        return self._driver.line

    async def theirs(self, *words: str, complaint: str = "") -> str:
        """What mqadmin prints."""
        arguments = (*words, "-n", self.site.name_server)
        return await beside(self._driver.mqadmin, *arguments, complaint=complaint)

    async def ours(self, *words: str) -> str:
        """What our command of that name prints; it shall do its work."""
        line = as_our_command([*words, "-n", self.site.name_server])
        result = await beside(CliRunner(env=PATIENT).invoke, command_for(line), line)
        assert result.exit_code == 0, (line, result.output, result.exception)
        return str(result.stdout)

    async def rows(self, *words: str) -> list[Row]:
        """The rows that our command shows to programs."""
        found: list[Row] = json.loads(await self.ours(*words, "--json"))
        return found

    async def one(self, *words: str) -> Row:
        """The one thing that our command shows to programs."""
        found: Row = json.loads(await self.ours(*words, "--json"))
        return found


async def agree(
    theirs: Callable[[], Awaitable[Value]], ours: Callable[[], Awaitable[Value]]
) -> Value:
    """What both say, once they say the same: counters and offsets move while they are asked."""
    end_ms = _CLOCK.monotonic_ms() + CLIENT_TIMEOUT_S * 1000
    while True:
        is_last = _CLOCK.monotonic_ms() > end_ms
        said, shown = await theirs(), await ours()
        if said == shown:
            return said
        if is_last:
            raise AssertionError(f"mqadmin says {said}, ours says {shown}")
        await _CLOCK.sleep_ms(500)


async def reaches(wanted: Value, look: Callable[[], Awaitable[Value]]) -> None:
    """Return once a look shows what it should: servers tell one another, and that takes a moment."""
    end_ms = _CLOCK.monotonic_ms() + CLIENT_TIMEOUT_S * 1000
    while True:
        is_last = _CLOCK.monotonic_ms() > end_ms
        seen = await look()
        if seen == wanted:
            return
        assert not is_last, f"{seen} in the place of {wanted}"
        await _CLOCK.sleep_ms(200)


def columns(printed: str, *, of: str) -> list[list[str]]:
    """The lines of a table whose first column is `of`, each by its columns."""
    rows = (line.split() for line in printed.splitlines())
    return sorted(row for row in rows if row and row[0] == of)


def named(printed: str, separator: str) -> dict[str, str]:
    """Lines of the form `name: value`."""
    pairs = (line.partition(separator) for line in printed.splitlines())
    return {name.strip(): value.strip() for name, middle, value in pairs if middle}


def printed_messages(printed: str) -> set[tuple[str, str, int, int, str]]:
    """Id, broker, queue, offset and body of each message that mqadmin printed."""
    return {
        (message_id, broker, int(queue), int(offset), body.strip())
        for message_id, broker, queue, offset, body in _PRINTED_MESSAGE.findall(printed)
    }


def shown_messages(messages: list[Row]) -> set[tuple[str, str, int, int, str]]:
    """The same of those that ours showed."""
    return {
        (one["message_id"], one["broker"], one["queue"], one["offset"], one["body"])
        for one in messages
    }
