"""Our own name server as a child process, started the way a user starts it."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.interop import wire
from tests.interop.processes import ChildProcess, free_port
from tests.interop.waiting import wait_until

START_TIMEOUT_S = 30


class OrbitNameServer:
    """`orbitmq namesrv` on a free port."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.process = ChildProcess(
            "our name server",
            [
                str(Path(sys.executable).with_name("orbitmq")),
                "namesrv",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
            ],
            folder,
            environment={"HOME": str(folder)},
        )

    def wait_ready(self) -> None:
        """Return once it serves."""

        def serves() -> bool:
            if not self.process.is_running():
                raise ChildProcessError(f"our name server ended at start\n{self.process.tail()}")
            try:
                return wire.ask(self.address, wire.GET_CLUSTERS).code == wire.SUCCESS
            except OSError:
                return False

        wait_until(serves, timeout_s=START_TIMEOUT_S, what=f"our name server at {self.address}")
