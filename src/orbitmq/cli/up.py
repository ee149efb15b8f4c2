"""`orbitmq up`: runs name servers, brokers and slaves, without configuration."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from orbitmq import java_json
from orbitmq.broker.app import Broker
from orbitmq.broker.app import load_settings as load_broker_settings
from orbitmq.cli.own_command import own_command
from orbitmq.cli.servers.logs import LogLevel
from orbitmq.cli.servers.serving import LogLevelFlag, flags_of, serve
from orbitmq.cli.servers.site_plan import (
    broker_id_of,
    check_ports,
    name_of,
    near_host,
    plan_brokers,
    plan_name_servers,
    shown_host,
    shows_metrics,
)
from orbitmq.cli.servers.supervisor import WatchedProcess
from orbitmq.clock import SystemClock, time_limit
from orbitmq.errors import OrbitError, SettingsError, StoreLockedError
from orbitmq.model.routes import MASTER_ID
from orbitmq.nameserver.app import NameServer
from orbitmq.nameserver.app import load_settings as load_name_server_settings
from orbitmq.protocol.requests.statistics import GetReplication, Replication
from orbitmq.store.config import StoreConfig
from orbitmq.store.opening.directory_lock import DirectoryLock
from orbitmq.transport.addresses import format_address
from orbitmq.transport.rpc_client import RpcClient

log = logging.getLogger(__name__)

BROKERS_MAX: Final = 26
SLAVES_MAX: Final = 3
NAME_SERVERS_MAX: Final = 5
_PORT_MAX: Final = 65535
_METRICS_PORT: Final = 5557
_START_TIMEOUT_MS: Final = 60_000
# A slave that has much to copy, or refuses to, does not hold up the rest.
_SYNC_TIMEOUT_MS: Final = 10_000
_POLL_INTERVAL_MS: Final = 50


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("up")(up)


def up(  # noqa: PLR0913  # a parameter a flag
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
            help="Port of the first name server; the others count up by 1. 0 finds free ones.",
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
    slaves: Annotated[
        int,
        typer.Option(
            min=0,
            max=SLAVES_MAX,
            help="Slaves of each broker, which have copies of its messages; a message is "
            "acknowledged once a slave has it.",
        ),
    ] = 0,
    name_servers: Annotated[
        int, typer.Option("--namesrvs", min=1, max=NAME_SERVERS_MAX, help="Number of name servers.")
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
    """Run name servers and brokers until Ctrl-C, SIGTERM or SIGHUP."""
    servers = plan_name_servers(name_servers, folder=folder, host=host, port=name_server_port)
    plan = plan_brokers(
        brokers,
        slaves=slaves,
        folder=folder,
        host=host,
        port=broker_port,
        metrics_port=metrics_port,
        options=flags_of(options),
    )
    if not folder.exists():
        # Check before the folder is created, so that a failed start leaves nothing.
        check_ports(host, servers, plan)
    try:
        settings = load_broker_settings(environment=os.environ, flags=plan[0])
        lock = DirectoryLock(folder, settings.of(StoreConfig).modes)
    except StoreLockedError as error:
        raise SettingsError(
            f"another orbitmq up is running in {folder}", hint="stop it, or choose another --dir"
        ) from error
    try:
        check_ports(host, servers, plan)
        site = _Site(folder, host, servers, plan, log_level)
        serve(lambda _: site, log_level, use_native_loop=True)
    finally:
        lock.release()


@dataclass(slots=True, eq=False)
class _Site:
    """The name servers in this process, and the brokers here or in separate processes."""

    folder: Path
    host: str
    name_servers: list[dict[str, str]]
    plan: list[dict[str, str]]
    log_level: LogLevel
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self) -> None:
        """Start everything; returns once clients can connect."""
        try:
            started = [await self._start_name_server(flags) for flags in self.name_servers]
            near = _addresses(near_host(self.host), started)
            if len(self.plan) == 1:
                await self._start_here(near)
            else:
                await self._start_processes(near, started)
        except BaseException:
            await self.opened.aclose()
            raise
        self._greet(_addresses(shown_host(self.host), started))

    async def _start_name_server(self, flags: dict[str, str]) -> NameServer:
        server = NameServer(load_name_server_settings(environment=os.environ, flags=flags))
        await server.start()
        self.opened.push_async_callback(server.stop)
        return server

    async def stop(self) -> None:
        """Stop everything, brokers first."""
        _say("stopping…", err=True)
        await self.opened.aclose()

    async def _start_here(self, name_servers: str) -> None:
        flags = {**self.plan[0], "namesrvAddr": name_servers}
        broker = Broker(load_broker_settings(environment=os.environ, flags=flags))
        await broker.start()
        self.opened.push_async_callback(broker.stop)

    async def _start_processes(self, addresses: str, name_servers: list[NameServer]) -> None:
        masters: list[WatchedProcess] = []
        slaves: list[WatchedProcess] = []

        async def stop_all() -> None:
            # Slaves last: messages of a master that stops may still wait for them.
            for processes in (masters, slaves):
                await asyncio.gather(*(process.stop() for process in processes))

        self.opened.push_async_callback(stop_all)
        for flags in self.plan:
            command = [sys.executable, "-m", "orbitmq.cli.main", "broker"]
            command += [f"--namesrv={addresses}", f"--log-level={self.log_level}"]
            command += ["--until-input-ends"]
            command += [f"--set={name}={value}" for name, value in flags.items()]
            process = WatchedProcess(name_of(flags), command)
            process.start()
            (masters if broker_id_of(flags) == MASTER_ID else slaves).append(process)
        await self._until_registered(name_servers, masters + slaves)
        if slaves:
            await self._until_in_sync()

    async def _until_registered(
        self, name_servers: list[NameServer], processes: list[WatchedProcess]
    ) -> None:
        clock = SystemClock()
        wanted = {(flags["brokerName"], broker_id_of(flags)) for flags in self.plan}
        try:
            async with time_limit(clock, _START_TIMEOUT_MS):
                while not all(wanted <= _registered(server) for server in name_servers):
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

    async def _until_in_sync(self) -> None:
        """Wait until slaves are near the end of the log, so that the first sends are copied."""
        slaves = Counter(flags["brokerName"] for flags in self.plan if broker_id_of(flags))
        # After a promotion, another one of the group is the master.
        waiting: dict[str, list[str]] = {}
        for flags in self.plan:
            address = format_address((near_host(self.host), int(flags["listenPort"])))
            waiting.setdefault(flags["brokerName"], []).append(address)
        clock = SystemClock()
        with suppress(TimeoutError):
            async with RpcClient() as rpc, time_limit(clock, _SYNC_TIMEOUT_MS):
                while waiting:
                    for name, addresses in list(waiting.items()):
                        in_sync = [await _slaves_in_sync(rpc, address) for address in addresses]
                        if max(in_sync) >= slaves[name]:
                            del waiting[name]
                    await clock.sleep_ms(_POLL_INTERVAL_MS)
        for name in waiting:
            log.warning("slaves are not in sync yet broker=%s", name)

    def _greet(self, addresses: str) -> None:
        host = shown_host(self.host)
        title = "name server" if len(self.name_servers) == 1 else "name servers"
        _say(f"{title:12} {addresses}")
        for flags in sorted(self.plan, key=lambda one: (one["brokerName"], broker_id_of(one))):
            number = broker_id_of(flags)
            name = f"  slave {number}" if number else flags["brokerName"]
            broker = format_address((host, int(flags["listenPort"])))
            metrics = format_address((host, int(flags["metricsPromExporterPort"])))
            shown = f"   metrics http://{metrics}/metrics" if shows_metrics(flags) else ""
            _say(f"{name:12} {broker}{shown}")
        _say(f"messages in  {self.folder}")
        _say("")
        _say("try, in another terminal:")
        command = own_command()
        namesrv = f"--namesrv {shlex.quote(addresses)}"
        _say(f"  {command} message send hello 'my first message' {namesrv}")
        _say(f"  {command} message tail hello {namesrv}")
        _say("stop with Ctrl-C")


def _addresses(host: str, servers: list[NameServer]) -> str:
    return ";".join(format_address((host, server.port)) for server in servers)


def _registered(server: NameServer) -> set[tuple[str, int]]:
    """The brokers that a name server knows, by name and id."""
    groups = server.routes.cluster_view().brokers
    return {(name, number) for name, group in groups.items() for number in group.addresses}


async def _slaves_in_sync(rpc: RpcClient, master: str) -> int:
    """How many slaves a master has that are near the end of its log; 0 if it does not say."""
    try:
        reply = await rpc.call(master, GetReplication())
    except OrbitError:
        return 0
    return java_json.decode(reply.body, Replication).in_sync_slaves


def _say(line: str, *, err: bool = False) -> None:
    # The terminal may be closed; SIGHUP handles that, not a failed write.
    with suppress(OSError):
        typer.echo(line, err=err)
