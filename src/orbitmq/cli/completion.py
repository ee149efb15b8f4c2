"""Topic and group arguments, with shell completion that queries the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Annotated, Any, Final

import typer

from orbitmq.cli.administering import client_keywords
from orbitmq.client.aio.admin import Admin
from orbitmq.clock import SystemClock, time_limit
from orbitmq.errors import OrbitError

# The user waits after pressing Tab.
_TIMEOUT_MS: Final = 1500

_Ask = Callable[[Admin], Coroutine[Any, Any, Iterable[str]]]


def complete_topic(context: typer.Context, incomplete: str) -> list[str]:
    """The topics with this prefix; none if no cluster answers."""
    return _names(context, incomplete, lambda admin: admin.topics.names())


def complete_group(context: typer.Context, incomplete: str) -> list[str]:
    """The groups with this prefix; none if no cluster answers."""
    return _names(context, incomplete, lambda admin: admin.groups.configs())


def _names(context: typer.Context, incomplete: str, ask: _Ask) -> list[str]:
    async def find() -> Iterable[str]:
        keywords = client_keywords(context.params.get("namesrv"))
        async with time_limit(SystemClock(), _TIMEOUT_MS), Admin(**keywords) as admin:
            return await ask(admin)

    try:
        found = asyncio.run(find())
    except (OrbitError, OSError, TimeoutError):
        # Completion cannot show errors.
        return []
    return [name for name in found if name.startswith(incomplete)]


Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic)]
Group = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_group)]
