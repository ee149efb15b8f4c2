"""`orbitmq up`: a name server and brokers in one folder, nothing to configure."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Final

import typer

from orbitmq.broker.app import Broker
from orbitmq.broker.app import load_settings as load_broker_settings
from orbitmq.cli.logs import LogLevel
from orbitmq.cli.serving import flags_of, serve
from orbitmq.cli.supervisor import WatchedProcess
from orbitmq.clock import SystemClock, time_limit
from orbitmq.errors import SettingsError, StoreLockedError
from orbitmq.nameserver.app import NameServer
from orbitmq.nameserver.app import load_settings as load_name_server_settings
from orbitmq.store.directory_lock import DirectoryLock
from orbitmq.transport.addresses import format_address

BROKERS_MAX: Final = 26
# Brokers use their port, the one two below and the one above.
_PORT_STEP: Final = 10
_METRICS_PORT: Final = 5557
# Enough for a laptop, and made at once; a broker of its own has RocketMQ's sizes.
_FILE_SIZES: Final = {
    "mappedFileSizeCommitLog": str(128 << 20),
    "maxHashSlotNum": "500000",
    "maxIndexNum": "2000000",
}
_START_TIMEOUT_MS: Final = 60_000
_LOOK_INTERVAL_MS: Final = 50


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("up")(up)


def up(
    *,
    folder: Annotated[
        Path, typer.Option("--dir", help="Folder for everything that is kept.")
    ] = Path("orbitmq-data"),
    host: Annotated[
        str, typer.Option(help="Address to listen on, and to tell clients of.")
    ] = "127.0.0.1",
    name_server_port: Annotated[
        int, typer.Option("--namesrv-port", help="Port of the name server; 0 finds a free one.")
    ] = 9876,
    broker_port: Annotated[
        int, typer.Option(help="Port of the first broker; the others count up by 10.")
    ] = 10911,
    brokers: Annotated[
        int,
        typer.Option(
            min=1, max=BROKERS_MAX, help="Brokers; several run as processes of their own."
        ),
    ] = 1,
    metrics_port: Annotated[
        int, typer.Option(help="Port of the first broker's metrics; the others count up by 1.")
    ] = _METRICS_PORT,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set any broker option; may be repeated."),
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="How much is logged.")] = LogLevel.WARNING,
) -> None:
    """Run a name server and brokers until Ctrl-C, SIGTERM or SIGHUP."""
    plan = [
        {
            "bindAddress": host,
            "brokerIP1": host,
            "brokerName": f"broker-{chr(ord('a') + number)}",
            "listenPort": str(broker_port + number * _PORT_STEP),
            "storePathRootDir": str(folder.absolute() / f"broker-{chr(ord('a') + number)}"),
            "metricsExporterType": "PROM",
            "metricsPromExporterHost": host,
            "metricsPromExporterPort": str(metrics_port + number),
            **_FILE_SIZES,
            **flags_of(options),
        }
        for number in range(brokers)
    ]
    for flags in plan:
        # A mistake shows before anything is started.
        load_broker_settings(environment=os.environ, flags=flags)
    try:
        lock = DirectoryLock(folder)
    except StoreLockedError as error:
        raise SettingsError(
            f"another orbitmq up runs in {folder}", hint="stop it, or name another --dir"
        ) from error
    site = _Site(folder, host, name_server_port, plan, log_level)
    try:
        serve(lambda: site, log_level, use_native_loop=True)
    finally:
        lock.release()


class _Site:
    """The name server in this process, and the brokers here or in processes of their own."""

    def __init__(
        self,
        folder: Path,
        host: str,
        port: int,
        plan: list[dict[str, str]],
        log_level: LogLevel,
    ) -> None:
        self._folder = folder
        self._host = host
        self._port = port
        self._plan = plan
        self._log_level = log_level
        self._opened = AsyncExitStack()

    async def start(self) -> None:
        """Start everything; returns once clients can be served."""
        flags = {
            "bindAddress": self._host,
            "listenPort": str(self._port),
            "kvConfigPath": str(self._folder.absolute() / "kvConfig.json"),
        }
        name_server = NameServer(load_name_server_settings(environment=os.environ, flags=flags))
        try:
            await name_server.start()
            self._opened.push_async_callback(name_server.stop)
            address = format_address((self._host, name_server.port))
            if len(self._plan) == 1:
                await self._start_here(address)
            else:
                await self._start_processes(address, name_server)
        except BaseException:
            await self._opened.aclose()
            raise
        self._greet(address)

    async def stop(self) -> None:
        """Stop everything, brokers first."""
        typer.secho("stopping…", dim=True, err=True)
        await self._opened.aclose()

    async def _start_here(self, name_server: str) -> None:
        flags = {**self._plan[0], "namesrvAddr": name_server}
        broker = Broker(load_broker_settings(environment=os.environ, flags=flags))
        await broker.start()
        self._opened.push_async_callback(broker.stop)

    async def _start_processes(self, address: str, name_server: NameServer) -> None:
        processes: list[WatchedProcess] = []

        async def stop_all() -> None:
            await asyncio.gather(*(process.stop() for process in processes))

        self._opened.push_async_callback(stop_all)
        for flags in self._plan:
            command = [sys.executable, "-m", "orbitmq.cli.main", "broker"]
            command += [f"--namesrv={address}", f"--log-level={self._log_level}"]
            command += [f"--set={name}={value}" for name, value in flags.items()]
            process = WatchedProcess(flags["brokerName"], command)
            process.start()
            processes.append(process)
        await self._until_registered(name_server)

    async def _until_registered(self, name_server: NameServer) -> None:
        clock = SystemClock()
        wanted = {flags["brokerName"] for flags in self._plan}
        try:
            async with time_limit(clock, _START_TIMEOUT_MS):
                while not wanted <= set(name_server.routes.cluster_view().brokers):
                    await clock.sleep_ms(_LOOK_INTERVAL_MS)
        except TimeoutError as error:
            raise SettingsError(
                f"not all brokers came up within {_START_TIMEOUT_MS // 1000} s",
                hint="their log lines above say why; a port may be taken: --broker-port",
            ) from error

    def _greet(self, address: str) -> None:
        say: Callable[[str], None] = typer.echo
        say(f"name server  {address}")
        for flags in self._plan:
            broker = format_address((self._host, int(flags["listenPort"])))
            metrics = format_address((self._host, int(flags["metricsPromExporterPort"])))
            say(f"{flags['brokerName']}     {broker}   metrics http://{metrics}/metrics")
        say(f"messages in  {self._folder}")
        say("")
        say("try, in another terminal:")
        say(f"  orbitmq message send hello 'my first message' --namesrv {address}")
        say(f"  orbitmq message tail hello --namesrv {address}")
        say("end with Ctrl-C")
