"""Archives of the classes that official programs load: with them a start costs half as much.

Made once for each line, by a name server, a broker and a client that do a little of everything.
"""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop import building
from tests.interop.building import LINES, BuildError
from tests.interop.drivers import DriverError, JavaDriver
from tests.interop.official import (
    USE_ARCHIVE,
    OfficialBroker,
    OfficialNameServer,
    archives_folder,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAKE_ARCHIVE = "-XX:ArchiveClassesAtExit="
_MESSAGES = 20
_JAVA_TIMEOUT_S = 60


def make_class_archives() -> None:
    """Make the archives of every line, unless they are there."""
    made_from = f"{_java_version()}{building.build_java()}"
    for line in LINES:
        with building.making(archives_folder(line), made_from) as needed:
            if not needed:
                continue
            try:
                _make(line)
            except (OSError, DriverError) as failure:
                raise BuildError(f"no archive of the classes of {line}: {failure}") from failure


def _make(line: str) -> None:
    """Each program writes its archive when it ends in good order."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        folder = Path(scratch)
        name_server = OfficialNameServer(line, folder / "name-server")
        broker = OfficialBroker(line, "broker", folder / "broker", [name_server.address])
        driver = JavaDriver(line, folder / "driver")
        for process in (name_server.process, broker.process, driver.process):
            process.command = _archiving(process.command)
        stack.callback(name_server.process.stop)
        name_server.process.start()
        name_server.wait_ready()
        stack.callback(broker.process.stop)
        broker.process.start()
        stack.callback(driver.stop)
        driver.start()
        broker.wait_ready()
        broker.create_topic("archived")
        driver.produce(name_server.address, "archived", _MESSAGES, tags="some", keys="key")
        driver.consume(name_server.address, "archived", _MESSAGES, group="archiving")
        driver.mqadmin("topicList", "-n", name_server.address)
        driver.process.popen.terminate()
        driver.process.popen.wait(_JAVA_TIMEOUT_S)


def _archiving(command: Sequence[str]) -> list[str]:
    return [
        _MAKE_ARCHIVE + argument.removeprefix(USE_ARCHIVE)
        if argument.startswith(USE_ARCHIVE)
        else argument
        for argument in command
    ]


def _java_version() -> str:
    # It prints to standard error.
    command = ["java", "-version"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=True
    ).stderr


if __name__ == "__main__":
    make_class_archives()
