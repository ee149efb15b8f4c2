"""Official RocketMQ name servers and brokers as child processes, small and on this machine only."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.interop import wire
from tests.interop.building import JAVA_FOLDER, TARGET_FOLDER
from tests.interop.ports import free_port
from tests.interop.processes import ChildProcess
from tests.interop.timeouts import REGISTER_TIMEOUT_S, START_TIMEOUT_S
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CLUSTER = "InteropCluster"

# What a JVM is told to take classes from an archive.
USE_ARCHIVE = "-XX:SharedArchiveFile="

# Compat: from its first transaction on, a broker of RocketMQ 5.5 keeps a processor busy: once the
# last ends are written down, the thread that does so asks without a pause whether there are more,
# until this interval has passed, which is short by default. Here each end is written at once.
NO_IDLE_LOOP: Final = {"transactionOpBatchInterval": "3600000", "transactionOpMsgMaxSize": "1"}

# The logging configuration under each name that some version looks for.
_LOGBACK_NAMES = (
    "rmq.logback.xml",
    "logback_broker.xml",
    "logback_namesrv.xml",
    "logback_tools.xml",
)


def java_command(
    line: str,
    part: str,
    folder: Path,
    main: str,
    *args: str,
    properties: Sequence[str] = (),
    classes: Path | None = None,
) -> list[str]:
    """The command of a small JVM whose home, logs and configuration lie in `folder`.

    `part` is `server` or `client`: a line may have them in different versions, so each has its jars.
    `classes` is where further classes lie, that of `main` for one.
    """
    configuration = folder / "conf"
    configuration.mkdir(parents=True, exist_ok=True)
    for name in _LOGBACK_NAMES:
        shutil.copyfile(JAVA_FOLDER / "logback.xml", configuration / name)
    # Jars come first, and one by one: an archive of classes is for the class path it was made with,
    # to which only more may be added.
    paths = [*sorted((TARGET_FOLDER / line / f"lib-{part}").glob("*.jar")), configuration]
    return [
        "java",
        "-Xms64m",
        "-Xmx256m",
        "-XX:MaxDirectMemorySize=256m",
        "-XX:+UseSerialGC",
        # These processes live for a minute: compiling harder costs more than it brings.
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        f"{USE_ARCHIVE}{class_archive(line, part, main)}",
        # An archive that does not fit or is not there is left alone; nothing shall be printed of it.
        "-Xlog:disable",
        # Releases of the 4.9 line reach into these to unmap their files.
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
        # The driver looks for threads that were told to stop.
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-Djava.security.manager=allow",
        f"-Duser.home={folder}",
        "-Duser.timezone=UTC",
        f"-Djava.io.tmpdir={folder}",
        f"-Drocketmq.home.dir={folder}",
        f"-Dinterop.log={folder / 'rocketmq.log'}",
        "-Drocketmq.client.logUseSlf4j=true",
        # Making a certificate takes a broker longer than everything else at start.
        "-Dtls.server.mode=disabled",
        # A nearly full disk of the machine must not turn into refused messages.
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
        "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
        *(f"-D{text}" for text in properties),
        "-cp",
        ":".join(str(path) for path in [*paths, *([classes] if classes else ())]),
        main,
        *args,
    ]


def class_archive(line: str, part: str, main: str) -> Path:
    """The file with the classes that such a program loads; `class_archives.py` makes it."""
    name = main.rpartition(".")[2] if part == "server" else part
    return archives_folder(line) / f"{name}.jsa"


def archives_folder(line: str) -> Path:
    """Where the archives of classes of a line lie."""
    return TARGET_FOLDER / line / "archives"


class OfficialNameServer:
    """An official name server of one line."""

    def __init__(self, line: str, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        settings = _write_settings(
            folder / "namesrv.conf",
            {
                "listenPort": self.address.rpartition(":")[2],
                "bindAddress": "127.0.0.1",
                "kvConfigPath": str(folder / "kvConfig.json"),
            },
        )
        self.process = ChildProcess(
            f"official name server {line}",
            java_command(
                line,
                "server",
                folder,
                "org.apache.rocketmq.namesrv.NamesrvStartup",
                "-c",
                str(settings),
            ),
            folder,
            environment={"ROCKETMQ_HOME": str(folder)},
        )

    def wait_ready(self) -> None:
        """Return once it serves."""
        self.process.wait_printed("boot success", timeout_s=START_TIMEOUT_S)


class OfficialBroker:
    """An official broker of one line, a master without slaves, known to `name_servers`."""

    def __init__(
        self,
        line: str,
        name: str,
        folder: Path,
        name_servers: Sequence[str],
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.line = line
        self.name = name
        self.name_servers = tuple(name_servers)
        # Beside its own port a broker listens two below (VIP) and one above (replication).
        port = free_port(-2, 1)
        self.address = f"127.0.0.1:{port}"
        file = _write_settings(
            folder / "broker.conf",
            {
                "brokerClusterName": CLUSTER,
                "brokerName": name,
                "brokerId": "0",
                "brokerIP1": "127.0.0.1",
                "brokerIP2": "127.0.0.1",
                "bindAddress": "127.0.0.1",
                "listenPort": str(port),
                "namesrvAddr": ";".join(name_servers),
                "storePathRootDir": str(folder / "store"),
                "storePathCommitLog": str(folder / "store" / "commitlog"),
                "mappedFileSizeCommitLog": str(16 << 20),
                "mappedFileSizeConsumeQueue": str(20 * 10_000),
                "maxHashSlotNum": "10000",
                "maxIndexNum": "40000",
                "timerWheelEnable": "false",
                # Compat: a thread of RocketMQ 5.5 keeps a processor busy until this time has passed
                # once, by default 10 s.
                "transactionMetricFlushInterval": "500",
                # A loaded machine must not turn into refused messages.
                "waitTimeMillsInSendQueue": "5000",
                "osPageCacheBusyTimeOutMills": "5000",
                **(settings or {}),
            },
        )
        self.process = ChildProcess(
            f"official broker {line} {name}",
            java_command(
                line,
                "server",
                folder,
                "org.apache.rocketmq.broker.BrokerStartup",
                "-c",
                str(file),
            ),
            folder,
            environment={"ROCKETMQ_HOME": str(folder)},
        )

    def wait_ready(self) -> None:
        """Return once it serves and every name server knows it."""
        self.process.wait_printed("boot success", timeout_s=START_TIMEOUT_S)
        wait_until(
            self._is_registered, timeout_s=REGISTER_TIMEOUT_S, what=f"{self.name} registered"
        )

    def wait_figures(self) -> None:
        """Return once it has figures of itself: in its first second, asking for them fails."""
        wait_until(
            lambda: wire.ask(self.address, wire.GET_RUNTIME).code == wire.SUCCESS,
            timeout_s=START_TIMEOUT_S,
            what=f"figures of {self.name}",
        )

    def _is_registered(self) -> bool:
        if all(self.name in wire.broker_names(server) for server in self.name_servers):
            return True
        # A 5.x broker that is up before its connections to the name servers are would otherwise
        # register ten seconds later.
        wire.force_registration(self.address)
        return False

    def create_topic(self, topic: str, *, queues: int = 4) -> None:
        """Create a topic on this broker alone, and return once every name server knows it."""
        wire.create_topic(self.address, topic, queues=queues)
        for name_server in self.name_servers:
            wire.wait_route_code(name_server, topic, wire.SUCCESS, timeout_s=REGISTER_TIMEOUT_S)


def _write_settings(file: Path, settings: dict[str, str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file
