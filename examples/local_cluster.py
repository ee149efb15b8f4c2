"""What all examples share: a cluster to talk to, theirs or one that `--namesrv` names.

The servers of an example's own cluster run in a thread of the example, in a temporary folder, and
end with it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from orbitmq.broker.app import Broker
from orbitmq.broker.app import load_settings as load_broker_settings
from orbitmq.nameserver.app import NameServer
from orbitmq.nameserver.app import load_settings as load_name_server_settings

T = TypeVar("T")

HERE: Final = "127.0.0.1"
START_TIMEOUT_S: Final = 30
# Files of a toy: RocketMQ's own sizes would take 1.4 GiB of the disk.
SMALL_FILES: Final = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


@contextmanager
def name_server() -> Iterator[str]:
    """Give the address of a name server: the one named by `--namesrv`, or one of our own."""
    # The first paragraph of the example's own docstring is its help.
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--namesrv", help="a running name server; without it, one is started")
    given: str | None = parser.parse_args().namesrv
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as address:
        yield address


@contextmanager
def started(folder: Path) -> Iterator[str]:
    """Run a name server and a broker with their files in a folder; gives the former's address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="cluster", daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(START_TIMEOUT_S)

    servers = run(_start(folder))
    try:
        yield f"{HERE}:{servers[0].port}"
    finally:
        run(_stop(*servers))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _start(folder: Path) -> tuple[NameServer, Broker]:
    names = NameServer(
        load_name_server_settings(
            flags={
                "bindAddress": HERE,
                "listenPort": "0",
                "kvConfigPath": str(folder / "kvConfig.json"),
            }
        )
    )
    await names.start()
    broker = Broker(
        load_broker_settings(
            flags={
                "bindAddress": HERE,
                "brokerIP1": HERE,
                "listenPort": "0",
                "namesrvAddr": f"{HERE}:{names.port}",
                "storePathRootDir": str(folder / "store"),
                **SMALL_FILES,
            }
        )
    )
    await broker.start()
    return names, broker


async def _stop(names: NameServer, broker: Broker) -> None:
    await broker.stop()
    await names.stop()
