"""`orbitmq up`: runs a name server and brokers, without configuration."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from orbitmq.broker.app import Broker
from orbitmq.broker.app import load_settings as load_broker_settings
from orbitmq.cli.own_command import own_command
from orbitmq.cli.servers.logs import LogLevel
from orbitmq.cli.servers.serving import LogLevelFlag, flags_of, serve
from orbitmq.cli.servers.site_plan import (
    check_ports,
    near_host,
    plan_brokers,
    shown_host,
    shows_metrics,
)
from orbitmq.cli.servers.supervisor import WatchedProcess
from orbitmq.clock import SystemClock, time_limit
from orbitmq.errors import SettingsError, StoreLockedError
from orbitmq.nameserver.app import NameServer
from orbitmq.nameserver.app import load_settings as load_name_server_settings
from orbitmq.store.config import StoreConfig
from orbitmq.store.opening.directory_lock import DirectoryLock
from orbitmq.transport.addresses import format_address

BROKERS_MAX: Final = 26
_PORT_MAX: Final = 65535
_METRICS_PORT: Final = 5557
_START_TIMEOUT_MS: Final = 60_000
_POLL_INTERVAL_MS: Final = 50


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("up")(up)


def up(
    *,
    folder: Annotated[
        Path, typer.Option("--dir", help="Folder for messages and all other files.")
    ] = Path("orbitmq-data"),
    host: Annotated[
        str, typer.Option(help="Address to listen on and to announce to clients.")
    ] = "127.0.0.1",
    name_server_port: Annotated[
        int,
        typer.Option(
            "--namesrv-port",
            min=0,
            max=_PORT_MAX,
            help="Port of the name server; 0 finds a free one.",
        ),
    ] = 9876,
    broker_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=_PORT_MAX,
            help="Port of the first broker; the others count up by 10. 0 finds free ones.",
        ),
    ] = 10911,
    brokers: Annotated[
        int,
        typer.Option(
            min=1, max=BROKERS_MAX, help="Number of brokers; several run in separate processes."
        ),
    ] = 1,
    metrics_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=_PORT_MAX,
            help="Port of the first broker's metrics; the others count up by 1. 0 finds free ones.",
        ),
    ] = _METRICS_PORT,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set any broker option; may be repeated."),
    ] = None,
    log_level: LogLevelFlag = LogLevel.WARNING,
) -> None:
    """Run a name server and brokers until Ctrl-C, SIGTERM or SIGHUP."""
    plan = plan_brokers(
        brokers,
        folder=folder,
        host=host,
        port=broker_port,
        metrics_port=metrics_port,
        options=flags_of(options),
    )
    if not folder.exists():
        # Check before the folder is created, so that a failed start leaves nothing.
        check_ports(host, name_server_port, plan)
    try:
        settings = load_broker_settings(environment=os.environ, flags=plan[0])
        lock = DirectoryLock(folder, settings.of(StoreConfig).modes)
    except StoreLockedError as error:
        raise SettingsError(
            f"another orbitmq up is running in {folder}", hint="stop it, or choose another --dir"
        ) from error
    try:
        check_ports(host, name_server_port, plan)
        site = _Site(folder, host, name_server_port, plan, log_level)
        serve(lambda: site, log_level, use_native_loop=True)
    finally:
        lock.release()


@dataclass(slots=True, eq=False)
class _Site:
    """The name server in this process, and the brokers here or in separate processes."""

    folder: Path
    host: str
    port: int
    plan: list[dict[str, str]]
    log_level: LogLevel
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self) -> None:
        """Start everything; returns once clients can connect."""
        flags = {
            "bindAddress": self.host,
            "listenPort": str(self.port),
            "kvConfigPath": str(self.folder.absolute() / "kvConfig.json"),
        }
        name_server = NameServer(load_name_server_settings(environment=os.environ, flags=flags))
        try:
            await name_server.start()
            self.opened.push_async_callback(name_server.stop)
            near = format_address((near_host(self.host), name_server.port))
            if len(self.plan) == 1:
                await self._start_here(near)
            else:
                await self._start_processes(near, name_server)
        except BaseException:
            await self.opened.aclose()
            raise
        self._greet(format_address((shown_host(self.host), name_server.port)))

    async def stop(self) -> None:
        """Stop everything, brokers first."""
        _say("stopping…", err=True)
        await self.opened.aclose()

    async def _start_here(self, name_server: str) -> None:
        flags = {**self.plan[0], "namesrvAddr": name_server}
        broker = Broker(load_broker_settings(environment=os.environ, flags=flags))
        await broker.start()
        self.opened.push_async_callback(broker.stop)

    async def _start_processes(self, address: str, name_server: NameServer) -> None:
        processes: list[WatchedProcess] = []

        async def stop_all() -> None:
            await asyncio.gather(*(process.stop() for process in processes))

        self.opened.push_async_callback(stop_all)
        for flags in self.plan:
            command = [sys.executable, "-m", "orbitmq.cli.main", "broker"]
            command += [f"--namesrv={address}", f"--log-level={self.log_level}"]
            command += ["--until-input-ends"]
            command += [f"--set={name}={value}" for name, value in flags.items()]
            process = WatchedProcess(flags["brokerName"], command)
            process.start()
            processes.append(process)
        await self._until_registered(name_server, processes)

    async def _until_registered(
        self, name_server: NameServer, processes: list[WatchedProcess]
    ) -> None:
        clock = SystemClock()
        wanted = {flags["brokerName"] for flags in self.plan}
        try:
            async with time_limit(clock, _START_TIMEOUT_MS):
                while not wanted <= set(name_server.routes.cluster_view().brokers):
                    for process in processes:
                        if process.exits:
                            raise SettingsError(
                                f"{process.name} did not start", hint="see its log lines above"
                            )
                    await clock.sleep_ms(_POLL_INTERVAL_MS)
        except TimeoutError as error:
            raise SettingsError(
                f"not all brokers started within {_START_TIMEOUT_MS // 1000} s",
                hint="see their log lines above",
            ) from error

    def _greet(self, address: str) -> None:
        host = shown_host(self.host)
        _say(f"name server  {address}")
        for flags in self.plan:
            broker = format_address((host, int(flags["listenPort"])))
            metrics = format_address((host, int(flags["metricsPromExporterPort"])))
            shown = f"   metrics http://{metrics}/metrics" if shows_metrics(flags) else ""
            _say(f"{flags['brokerName']}     {broker}{shown}")
        _say(f"messages in  {self.folder}")
        _say("")
        _say("try, in another terminal:")
        command = own_command()
        _say(f"  {command} message send hello 'my first message' --namesrv {address}")
        _say(f"  {command} message tail hello --namesrv {address}")
        _say("stop with Ctrl-C")


def _say(line: str, *, err: bool = False) -> None:
    # The terminal may be closed; SIGHUP handles that, not a failed write.
    with suppress(OSError):
        typer.echo(line, err=err)
