"""The units and the compose file of `examples/deploy`: what they start becomes a healthy cluster."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.integration.held_ports import held_port
from tests.waiting import wait_until

DEPLOY = Path(__file__).parents[3] / "examples" / "deploy"
UNITS = DEPLOY / "systemd"
ORBITMQ = str(Path(sys.executable).with_name("orbitmq"))
INSTALLED = "/opt/orbitmq/bin/orbitmq"
NAME_SERVER_PORT = 9876
# Beside its own port a broker listens two below and one above.
BROKER_STEPS = (-2, 1)
HEALTHY_S = 120


@pytest.fixture
def ports() -> Iterator[ExitStack]:
    """Holds ports for as long as the test runs."""
    with ExitStack() as held:
        yield held


class Servers:
    """Servers in processes of their own; each writes its log to a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, words: list[str], environment: Mapping[str, str]) -> None:
        """Start one."""
        with (self._folder / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(
                words, stderr=log, stdout=log, env={**os.environ, **environment}
            )

    def check(self) -> None:
        """Fail if one has ended."""
        for name, process in self._running.items():
            assert process.poll() is None, (self._folder / f"{name}.log").read_text()

    def stop(self) -> dict[str, int]:
        """Stop all, those that started last first; returns how each ended."""
        ends = {}
        for name, process in reversed(self._running.items()):
            process.send_signal(signal.SIGTERM)
            ends[name] = process.wait(HEALTHY_S)
        return ends

    def kill(self) -> None:
        """End what is left of a test that failed."""
        for process in self._running.values():
            process.kill()
            process.wait()


@contextmanager
def servers_in(folder: Path) -> Iterator[Servers]:
    servers = Servers(folder)
    try:
        yield servers
    finally:
        servers.kill()


def wait_healthy(servers: Servers, words: list[str], environment: Mapping[str, str]) -> None:
    """Return once a health check succeeds."""

    def is_healthy() -> bool:
        servers.check()
        done = subprocess.run(
            words, env={**os.environ, **environment}, capture_output=True, check=False
        )
        return done.returncode == 0

    wait_until(is_healthy, timeout_s=HEALTHY_S, what=shlex.join(words))


def replaced(text: str, places: Mapping[str, str]) -> str:
    """A text of the example with what it is on this machine."""
    for shown, actual in places.items():
        text = text.replace(shown, actual)
    return text


# --- systemd --------------------------------------------------------------------------------------


def service_of(unit: Path) -> dict[str, str]:
    """The settings of a unit's service."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # how it is documented
    parser.read_string(unit.read_text())
    return dict(parser["Service"])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["orbitmq-namesrv.service", "orbitmq-broker@.service"])
def test_systemd_finds_nothing_wrong_with_a_unit(tmp_path: Path, name: str) -> None:
    unit = tmp_path / name.replace("@", "@broker-a")
    unit.write_text((UNITS / name).read_text().replace(INSTALLED, ORBITMQ))

    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )

    # What it says of units of this machine does not count.
    complaints = [line for line in found.stderr.splitlines() if "orbitmq" in line]
    assert (found.returncode, complaints) == (0, [])


def test_what_the_units_start_becomes_a_healthy_cluster(tmp_path: Path, ports: ExitStack) -> None:
    # Two machines, each with a name server and a broker.
    machines = {"mq-1.example": "broker-a", "mq-2.example": "broker-a-slave"}
    name_servers = {host: ports.enter_context(held_port()) for host in machines}
    brokers = {host: ports.enter_context(held_port(*BROKER_STEPS)) for host in machines}
    addresses = {
        f"{host}:{NAME_SERVER_PORT}": f"127.0.0.1:{port}" for host, port in name_servers.items()
    }
    words: dict[str, list[str]] = {}
    for host, broker in machines.items():
        folder = tmp_path / host
        configuration = folder / "etc"
        configuration.mkdir(parents=True)
        places = {
            **addresses,
            **dict.fromkeys(machines, "127.0.0.1"),
            "listenPort=9876": f"listenPort={name_servers[host]}",
            "listenPort=10911": f"listenPort={brokers[host]}",
            "/var/lib/orbitmq": str(folder / "lib"),
            "/etc/orbitmq": str(configuration),
            INSTALLED: ORBITMQ,
            "%i": broker,
        }
        for name in ("namesrv", broker):
            text = (UNITS / f"{name}.conf").read_text()
            (configuration / f"{name}.conf").write_text(
                replaced(text, places) + "bindAddress=127.0.0.1\n"
            )
        for unit in ("orbitmq-namesrv.service", "orbitmq-broker@.service"):
            command = service_of(UNITS / unit)["ExecStart"]
            words[f"{host}-{unit}"] = shlex.split(replaced(command, places))

    with servers_in(tmp_path) as servers:
        for name, command_words in words.items():
            servers.start(name, command_words, {"HOME": str(tmp_path)})
        namesrv = ";".join(addresses.values())
        wait_healthy(servers, [ORBITMQ, "cluster", "health", "-n", namesrv], {})
        ends = servers.stop()

    assert set(ends.values()) == {0}
    assert len(ends) == 4


# --- compose --------------------------------------------------------------------------------------


def test_what_the_compose_file_starts_becomes_healthy(tmp_path: Path, ports: ExitStack) -> None:
    document = msgspec.yaml.decode((DEPLOY / "compose.yaml").read_bytes())
    services: dict[str, dict[str, Any]] = document["services"]
    entry = next(
        json.loads(line.removeprefix("ENTRYPOINT "))
        for line in (DEPLOY / "Dockerfile").read_text().splitlines()
        if line.startswith("ENTRYPOINT ")
    )
    name_servers = [name for name in services if name.startswith("namesrv")]
    at = {
        name: ports.enter_context(held_port(*(() if name in name_servers else BROKER_STEPS)))
        for name in services
    }
    addresses = {f"{name}:{NAME_SERVER_PORT}": f"127.0.0.1:{at[name]}" for name in name_servers}

    def words_of(name: str, words: list[str]) -> list[str]:
        places = {
            **addresses,
            f"127.0.0.1:{NAME_SERVER_PORT}": f"127.0.0.1:{at[name]}",
            "/data": str(tmp_path / name),
            f"brokerIP1={name}": "brokerIP1=127.0.0.1",
        }
        return [ORBITMQ if word == "orbitmq" else replaced(word, places) for word in words]

    def environment_of(name: str) -> dict[str, str]:
        given = services[name]["environment"]
        return {key: replaced(value, addresses) for key, value in given.items()}

    with servers_in(tmp_path) as servers:
        for name, service in services.items():
            assert [volume.partition(":") for volume in service["volumes"]] == [
                (name, ":", "/data")
            ]
            assert name in document["volumes"]
            words = words_of(name, [*entry, *service["command"]])
            here = ["--host", "127.0.0.1", "--port", str(at[name])]
            servers.start(name, [*words, *here], environment_of(name))
        for name, service in services.items():
            kind, *check = service["healthcheck"]["test"]
            assert kind == "CMD"
            wait_healthy(servers, words_of(name, check), environment_of(name))
        ends = servers.stop()

    assert ends == dict.fromkeys(services, 0)
