"""Running a server from the command line: options, signals, the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterable
from typing import Annotated, Protocol

import typer

from orbitmq.cli.servers.logs import LogLevel, log_to_stderr
from orbitmq.errors import SettingsError
from orbitmq.settings import Settings
from orbitmq.transport import event_loop
from orbitmq.transport.config import ServerConfig

log = logging.getLogger(__name__)

# Flags of every server.
PrintOptions = Annotated[
    bool, typer.Option("-p", "--print", help="Print every option with its value and exit.")
]
Host = Annotated[
    str | None,
    typer.Option(help="Address to listen on.", show_default="0.0.0.0"),  # noqa: S104  # a text
]
OtherOptions = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set any other option; may be repeated."),
]
LogLevelFlag = Annotated[LogLevel, typer.Option(help="How much is logged.")]


# Called by a server that cannot go on.
Fail = Callable[[BaseException], None]


class Server(Protocol):
    """Something to start and stop."""

    async def start(self) -> None:
        """Start to serve."""

    async def stop(self) -> None:
        """Finish requests in flight, then stop."""


def flags_of(options: list[str] | None, **named: object) -> dict[str, str]:
    """Merge options given as NAME=VALUE with those that have a flag of their own."""
    flags: dict[str, str] = {}
    for text in options or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingsError(f"--set {text!r} has no value", hint="write --set NAME=VALUE")
        flags[name.strip()] = value.strip()
    return flags | {name: str(value) for name, value in named.items() if value is not None}


def print_settings(settings: Settings) -> None:
    """Print every option with its value."""
    for warning in settings.warnings:
        typer.secho(f"orbitmq: {warning}", fg=typer.colors.YELLOW, err=True)
    typer.echo(settings.as_properties_text(), nl=False)


def run(
    settings: Settings,
    make_server: Callable[[Fail], Server],
    log_level: LogLevel,
    *,
    until_input_ends: bool = False,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP; creates the server on its event loop."""
    serve(
        make_server,
        log_level,
        use_native_loop=settings.of(ServerConfig).use_native_loop,
        until_input_ends=until_input_ends,
        warnings=settings.warnings,
    )


def serve(
    make_server: Callable[[Fail], Server],
    log_level: LogLevel,
    *,
    use_native_loop: bool,
    until_input_ends: bool = False,
    warnings: Iterable[object] = (),
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, logging to standard error."""
    log_to_stderr(log_level)
    for warning in warnings:
        log.warning("%s", warning)
    main = _serve(make_server, until_input_ends=until_input_ends)
    event_loop.run(main, use_native_loop=use_native_loop)


async def _serve(make_server: Callable[[Fail], Server], *, until_input_ends: bool) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Signals that the parent ignores stay ignored: `nohup` ignores SIGHUP, and a script's
        # background job the SIGINT that is meant for the script.
        if number == signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stopping.set)
    if until_input_ends:
        loop.add_reader(0, _stop_at_end_of_input, stopping)
    failures: list[BaseException] = []

    def fail(error: BaseException) -> None:
        failures.append(error)
        stopping.set()

    server = make_server(fail)
    starting = asyncio.ensure_future(server.start())
    stop_requested = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({starting, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # A start may be slow, or hang.
        starting.cancel()
        await asyncio.wait({starting})
        return
    try:
        await starting
        await stop_requested
    finally:
        stop_requested.cancel()
    await server.stop()
    if failures:
        raise failures[0]


def _stop_at_end_of_input(stopping: asyncio.Event) -> None:
    if not os.read(0, 4096):
        asyncio.get_running_loop().remove_reader(0)
        stopping.set()
