"""Requests that show and change the options of a running server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.disk import off_loop
from orbitmq.errors import ForbiddenOptionError, GuardedOptionError, RequestRefusedError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.settings.properties_file import write_property

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.protocol.command import Command
    from orbitmq.protocol.headers import Header
    from orbitmq.settings import Changed, Settings
    from orbitmq.transport.connection import Connection

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class OptionRequests:
    """Shows and changes the options of one server."""

    settings: Settings
    # Keeps changes across restarts.
    file: Path
    # Options that no update may change.
    forbidden: Callable[[], Collection[str]]
    # Whether updates may change options that could do harm.
    allow_guarded: bool = False

    async def update(self, connection: Connection, request: Command) -> Command:
        """Change options of the running server, and save the change to its file."""
        await self.apply(connection, request)
        return request.reply()

    async def apply(self, connection: Connection, request: Command) -> Changed:
        """Change the options in a request's body; returns what changed."""
        try:
            changed = self.settings.update(
                request.body,
                forbidden=self.forbidden(),
                allow_guarded=self.allow_guarded,
            )
        except (ForbiddenOptionError, GuardedOptionError) as error:
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, str(error)) from error
        for warning in changed.warnings:
            log.warning("option %s peer=%s", warning, connection.address)
        for option in changed.options:
            log.info(
                "option changed name=%s old=%s new=%s peer=%s",
                option.name,
                option.old,
                option.new,
                connection.address,
            )
        await off_loop(self.settings.save, self.file)
        return changed

    def show(self, _: Connection, request: Command) -> Command:
        """Show every option."""
        return self.reply_with_options(request)

    def reply_with_options(
        self,
        request: Command,
        header: Header | None = None,
        *,
        further: Mapping[str, str] | None = None,
    ) -> Command:
        """Answer with every option as properties text, and with further names and values."""
        lines = [write_property(*one) + "\n" for one in (further or {}).items()]
        return request.reply(
            header, body=(self.settings.as_properties_text() + "".join(lines)).encode()
        )
