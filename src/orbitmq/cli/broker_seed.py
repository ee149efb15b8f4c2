"""`orbitmq broker seed`: makes the store of a slave from copied log files."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.broker.app import load_settings
from orbitmq.broker.replicated import ReplicatedBroker
from orbitmq.broker.replication.seeding import Seeded, Seeding, ask_master, copy_files
from orbitmq.cli.administering import NameServers, administer, client_keywords
from orbitmq.cli.output import AsJson, show_json
from orbitmq.cli.own_command import own_command
from orbitmq.cli.servers.logs import LogLevel
from orbitmq.cli.servers.serving import LogLevelFlag, OtherOptions, flags_of, run
from orbitmq.client.aio.admin import Admin
from orbitmq.client.aio.admin.draining import BrokerToDrain
from orbitmq.clock import SystemClock
from orbitmq.disk import off_loop
from orbitmq.errors import SettingsError
from orbitmq.settings import Settings
from orbitmq.store.config import StoreConfig
from orbitmq.transport.rpc_client import RpcClient


def seed(  # noqa: PLR0913  # a parameter a flag
    store: Annotated[Path, typer.Argument(metavar="DIR", help="Store directory of the slave.")],
    *,
    master: Annotated[str, typer.Option("--master", help="Its name, or its address.")],
    source: Annotated[
        Path | None,
        typer.Option(
            "--copy-from", help="Copy the log files from here: the master's store directory."
        ),
    ] = None,
    broker_id: Annotated[int, typer.Option("--id", min=1, help="The brokerId of the slave.")] = 1,
    config: Annotated[
        Path | None, typer.Option("-c", "--config", help="Properties file of the slave.")
    ] = None,
    options: OtherOptions = None,
    start: Annotated[bool, typer.Option("--start", help="Then run the slave.")] = False,
    namesrv: NameServers = None,
    as_json: AsJson = False,
    log_level: LogLevelFlag = LogLevel.INFO,
) -> None:
    """Make the store of a slave from log files that were copied while the master runs.

    The files are in DIR/commitlog. The slave then copies only what came later.
    """
    found = administer(namesrv, lambda admin: _find(admin, master, broker_id))
    flags = {
        **flags_of(options),
        "namesrvAddr": str(client_keywords(namesrv)["namesrv"]),
        "brokerName": found.name,
        "brokerId": str(broker_id),
        "brokerRole": "SLAVE",
        "storePathRootDir": str(store.absolute()),
    }
    seeded, flags = asyncio.run(_seed(found, source, config, flags))
    settings = load_settings(file=config, environment=os.environ, flags=flags)
    command = _start_command(config, flags)
    if as_json:
        show_json(
            {
                "store": str(seeded.root),
                "start": seeded.start,
                "end": seeded.end,
                "cut_bytes": seeded.cut_bytes,
                "left_bytes": seeded.left_bytes,
                "command": command,
            }
        )
    else:
        typer.echo(
            f"{seeded.root} has the log of {found.name} from {seeded.start} to {seeded.end}; the "
            f"slave copies the other {seeded.left_bytes} bytes"
        )
        typer.echo(f"start it: {command}")
    if start:
        run(
            settings,
            lambda fail: ReplicatedBroker(settings, config_file=config, on_failure=fail),
            log_level,
        )


async def _find(admin: Admin, master: str, broker_id: int) -> BrokerToDrain:
    """Find the master; raises if a broker of its group has the id now.

    One that is missing does not count: a seeded slave may take its place.
    """
    found = await admin.draining.find(master)
    view = await admin.brokers.clusters()
    taken = dict(view.brokers[found.name].addresses)
    for slave in (await admin.brokers.replication(found.address)).slaves:
        if slave.broker_id is not None and slave.broker_address:
            taken.setdefault(slave.broker_id, slave.broker_address)
    if broker_id in taken:
        free = next(number for number in range(1, len(taken) + 2) if number not in taken)
        raise SettingsError(
            f"the broker at {taken[broker_id]} has the id {broker_id} of {found.name} already",
            hint=f"choose another one: --id {free}",
        )
    return found


async def _seed(
    master: BrokerToDrain, source: Path | None, config: Path | None, flags: dict[str, str]
) -> tuple[Seeded, dict[str, str]]:
    async with RpcClient() as rpc:
        log = await ask_master(rpc, master.address, master.name)
        flags = {**flags, "mappedFileSizeCommitLog": str(log.file_bytes)}
        settings: Settings = load_settings(file=config, environment=os.environ, flags=flags)
        store_config = settings.of(StoreConfig)
        seeding = Seeding(store_config, SystemClock())
        await off_loop(seeding.check_unused)
        if source is not None:
            await off_loop(copy_files, source, store_config.root.expanduser(), _say)
            # What became visible meanwhile need not be cut.
            log = await ask_master(rpc, master.address, master.name)
        return await seeding.run(rpc, master.address, log), flags


def _say(name: str) -> None:
    typer.secho(f"copying {name}", dim=True, err=True)


def _start_command(config: Path | None, flags: dict[str, str]) -> str:
    words = [own_command(), "broker"]
    if config is not None:
        words += ["-c", str(config)]
    for name, value in flags.items():
        words += ["--set", f"{name}={value}"]
    return " ".join([words[0], *map(shlex.quote, words[1:])])
