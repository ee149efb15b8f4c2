"""RocketMQ's proxy and PyPI's client for it, fetched when they are first needed.

That client speaks gRPC, which no broker does: a proxy of RocketMQ's stands between them.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.official_servers import SCRIPT_FLAGS
from tests.interop.official import CLUSTER
from tests.interop.ports import free_port
from tests.interop.processes import ChildProcess

CLIENT: Final = "rocketmq-python-client"
CLIENT_VERSION: Final = "5.1.2"
_HERE: Final = Path(__file__).parent
_CACHE: Final = _HERE.parent / ".cache"
_JARS: Final = _CACHE / "proxy"
_ENVIRONMENT: Final = _CACHE / f"{CLIENT}-{CLIENT_VERSION}"
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_START_TIMEOUT_S: Final = 180


class MissingPeerError(Exception):
    """The proxy or its client cannot be fetched."""


def client_python() -> Path:
    """The interpreter of an environment that has the client."""
    python = _ENVIRONMENT / "bin" / "python"
    if not (_ENVIRONMENT / "ready").exists():
        venv.create(_ENVIRONMENT, with_pip=True)
        _run([str(python), "-m", "pip", "install", "--quiet", f"{CLIENT}=={CLIENT_VERSION}"])
        (_ENVIRONMENT / "ready").touch()
    return python


def _jars() -> Path:
    if not any(_JARS.glob("rocketmq-proxy-*.jar")):
        pom = _HERE / "clients" / "proxy-pom.xml"
        scope = ["-DincludeScope=runtime", f"-DoutputDirectory={_JARS}"]
        _run(["mvn", "-B", "-q", "-f", str(pom), _COPY, *scope])
    return _JARS


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    except OSError as error:
        raise MissingPeerError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise MissingPeerError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


@contextlib.contextmanager
def running_proxy(folder: Path, name_server: str) -> Iterator[str]:
    """A proxy before the brokers that a name server knows; its address."""
    folder.mkdir(parents=True)
    port, remoting_port = free_port(), free_port()
    settings = folder / "rmq-proxy.json"
    settings.write_text(
        json.dumps(
            {
                "rocketMQClusterName": CLUSTER,
                "proxyMode": "CLUSTER",
                "namesrvAddr": name_server,
                "grpcServerPort": port,
                "remotingListenPort": remoting_port,
                "localServeAddr": "127.0.0.1",
                "enableTopicMessageTypeCheck": False,
            }
        )
    )
    (folder / "conf").mkdir()
    process = ChildProcess(
        "official proxy",
        [
            "java",
            *SCRIPT_FLAGS,
            "-Xms1g",
            "-Xmx1g",
            f"-Duser.home={folder}",
            f"-Drocketmq.home.dir={folder}",
            "-Dtls.server.mode=permissive",
            "-cp",
            f"{folder / 'conf'}:{_jars()}/*",
            "org.apache.rocketmq.proxy.ProxyStartup",
            "-pc",
            str(settings),
        ],
        folder,
        environment={"ROCKETMQ_HOME": str(folder)},
    )
    process.start()
    try:
        process.wait_printed("startup successfully", timeout_s=_START_TIMEOUT_S)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()


if __name__ == "__main__":
    print(client_python(), _jars(), file=sys.stderr)
