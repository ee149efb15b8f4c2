"""`orbitmq namesrv`: run a name server."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.logs import LogLevel, log_to_stderr
from orbitmq.errors import SettingsError
from orbitmq.nameserver.app import NameServer, load_settings
from orbitmq.settings import Settings
from orbitmq.transport import event_loop
from orbitmq.transport.config import ServerConfig

log = logging.getLogger(__name__)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("namesrv")(namesrv)


def namesrv(
    *,
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", help="Properties file, as RocketMQ's namesrv.conf."),
    ] = None,
    print_options: Annotated[
        bool, typer.Option("-p", "--print", help="Print every option with its value and exit.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on.", show_default="0.0.0.0"),  # noqa: S104  # a text
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on.", show_default="9876")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set any other option; may be repeated."),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="How much is logged.")] = LogLevel.INFO,
) -> None:
    """Run a name server until it is told to stop by SIGTERM, SIGINT or SIGHUP."""
    settings = load_settings(
        file=config, environment=os.environ, flags=_flags(host, port, options or [])
    )
    if print_options:
        for warning in settings.warnings:
            typer.secho(f"orbitmq: {warning}", fg=typer.colors.YELLOW, err=True)
        typer.echo(settings.as_properties_text(), nl=False)
        return
    log_to_stderr(log_level)
    for warning in settings.warnings:
        log.warning("%s", warning)
    event_loop.run(
        _serve(settings, config), use_native_loop=settings.of(ServerConfig).use_native_loop
    )


def _flags(host: str | None, port: int | None, options: list[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingsError(f"--set {text!r} has no value", hint="write --set NAME=VALUE")
        flags[name.strip()] = value.strip()
    if host is not None:
        flags["bindAddress"] = host
    if port is not None:
        flags["listenPort"] = str(port)
    return flags


async def _serve(settings: Settings, config_file: Path | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stopping.set)
    server = NameServer(settings, config_file=config_file)
    await server.start()
    await stopping.wait()
    await server.stop()
