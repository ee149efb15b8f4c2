"""Soak the name server: brokers and clients at work beside hostile peers, for minutes.

A name server runs as a process of its own. Brokers come, report and vanish, clients ask for
routes and check every answer, and hostile peers send broken, oversized and unfinished input, ask
for much and read nothing. At the end all of them are gone: the server must still answer, hold no
broker, no kept byte, and no more memory than a bound. The result is written to docs/soak/.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import platform
import random
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil

from orbitmq import __version__
from orbitmq.client.aio.instance.name_servers import NameServers
from orbitmq.clock import SystemClock
from orbitmq.errors import OrbitError, RouteNotFoundError
from orbitmq.model.topics import TopicConfig
from orbitmq.model.versions import DataVersion
from orbitmq.protocol.command import request
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.registration import RegisterBroker, encode_register_body
from orbitmq.protocol.requests.routing import GetClusterView, GetRoute
from orbitmq.transport.rpc_client import RpcClient

RESULTS: Final = Path(__file__).parent.parent / "docs" / "soak"
MEMORY_GROWTH_BYTES_MAX: Final = 150 * 1024 * 1024
BROKERS: Final = 8
CLIENTS: Final = 8
HOSTILE_PEERS: Final = 16
CALL_TIMEOUT_MS: Final = 20_000
CLOCK: Final = SystemClock()


class Campaign:
    """One run: the peers, what they did, and whether it is time to stop."""

    def __init__(self, address: str, seed: int, seconds: float) -> None:
        self.address = address
        self.seed = seed
        self.deadline_ms = CLOCK.monotonic_ms() + seconds * 1000
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []

    @property
    def running(self) -> bool:
        """Whether peers keep running."""
        return CLOCK.monotonic_ms() < self.deadline_ms and len(self.failures) < 20

    async def broker(self, number: int) -> None:
        """Report again and again on connections that end without a word."""
        chance = random.Random(self.seed * 1000 + number)
        topics = {name: TopicConfig(name=name) for name in ("shared", f"topic-{number}")}
        arrival = RegisterBroker(
            broker_name=f"broker-{number}",
            broker_address=f"127.0.0.1:{20_000 + number}",
            cluster_name="soak",
            broker_id=Long(0),
        )
        while self.running:
            async with RpcClient() as rpc:
                servers = NameServers([self.address], rpc)
                for version in range(chance.randrange(1, 20)):
                    compressed = chance.random() < 0.5
                    await rpc.call(
                        self.address,
                        replace(arrival, compressed=compressed),
                        encode_register_body(
                            topics, DataVersion(counter=version), compressed=compressed
                        ),
                        timeout_ms=CALL_TIMEOUT_MS,
                    )
                    route = await servers.route(f"topic-{number}")
                    if [group.name for group in route.brokers] != [f"broker-{number}"]:
                        self.failures.append(f"route of topic-{number} shows {route.brokers}")
                    self.counts["reports"] += 1

    async def client(self, number: int) -> None:
        """Ask for routes and for the cluster."""
        async with RpcClient() as rpc:
            servers = NameServers([self.address], rpc)
            while self.running:
                with contextlib.suppress(RouteNotFoundError):
                    await servers.ask(GetRoute(topic="shared"), timeout_ms=CALL_TIMEOUT_MS)
                await servers.ask(GetClusterView(), timeout_ms=CALL_TIMEOUT_MS)
                self.counts["client calls"] += 2
                await CLOCK.sleep_ms(number)

    async def hostile_peer(self, number: int) -> None:
        """Do something that no peer should do, on one connection after the other."""
        chance = random.Random(self.seed * 7000 + number)
        misdeeds = [_noise, _mutated, _unfinished, _oversized, _reads_nothing, _says_nothing]
        while self.running:
            misdeed = chance.choice(misdeeds)
            self.counts[misdeed.__name__.strip("_").replace("_", " ")] += 1
            with contextlib.suppress(OSError, TimeoutError):
                await misdeed(self.address, chance)

    async def run(self) -> None:
        """Let all peers loose until the time is over."""
        async with asyncio.TaskGroup() as peers:
            for kind, count in (
                (self.broker, BROKERS),
                (self.client, CLIENTS),
                (self.hostile_peer, HOSTILE_PEERS),
            ):
                for number in range(count):
                    peers.create_task(self._guarded(kind(number), f"{kind.__name__} {number}"))

    async def _guarded(self, peer: Coroutine[None, None, None], name: str) -> None:
        try:
            await peer
        except OrbitError as error:
            self.failures.append(f"{name}: {error}")


def _good_frame() -> bytes:
    return request(GetRoute(topic="shared")).encode()


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.partition(":")
    return await asyncio.open_connection(host, int(port), limit=2**16)


async def _send(address: str, content: bytes, *, wait_seconds: float = 2) -> None:
    """Send, take what comes back until the server closes or the time is over, and hang up."""
    reader, writer = await _connect(address)
    try:
        async with asyncio.timeout(wait_seconds):
            writer.write(content)
            await writer.drain()
            while await reader.read(65_536):
                pass
    finally:
        writer.transport.abort()


async def _noise(address: str, chance: random.Random) -> None:
    await _send(address, chance.randbytes(chance.randrange(1, 4096)), wait_seconds=0.2)


async def _mutated(address: str, chance: random.Random) -> None:
    frames = bytearray(_good_frame() * chance.randrange(1, 50))
    for _ in range(chance.randrange(1, 10)):
        frames[chance.randrange(len(frames))] = chance.randrange(256)
    await _send(address, bytes(frames), wait_seconds=0.2)


async def _unfinished(address: str, chance: random.Random) -> None:
    frame = (12 * 1024 * 1024).to_bytes(4, "big") + _good_frame()[4:]
    await _send(address, frame + bytes(chance.randrange(4 * 1024 * 1024)), wait_seconds=0.2)


async def _oversized(address: str, chance: random.Random) -> None:
    await _send(address, chance.randrange(2**24, 2**31).to_bytes(4, "big") + bytes(1000))


async def _reads_nothing(address: str, chance: random.Random) -> None:
    _, writer = await _connect(address)
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # streams sit on a Transport
    frames = request(GetClusterView()).encode() * 2000
    try:
        async with asyncio.timeout(1 + chance.random()):
            while True:
                writer.write(frames)
                await writer.drain()
    finally:
        writer.transport.abort()


async def _says_nothing(address: str, chance: random.Random) -> None:
    _, writer = await _connect(address)
    try:
        await CLOCK.sleep_ms(chance.random() * 500)
    finally:
        writer.transport.abort()


async def soak(seconds: float, seed: int) -> dict[str, object]:
    """Run the campaign and tell how it went."""
    with tempfile.TemporaryDirectory() as folder:
        port = _free_port()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "orbitmq.cli.main", "namesrv"),
            *("--host=127.0.0.1", f"--port={port}", "--log-level=error"),
            f"--set=kvConfigPath={folder}/kv.json",
        )
        try:
            return await _soak_process(process, f"127.0.0.1:{port}", seconds, seed)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _soak_process(
    process: Process, address: str, seconds: float, seed: int
) -> dict[str, object]:
    server = psutil.Process(process.pid)
    async with RpcClient() as rpc:
        await _until_it_answers(rpc, address)
        await rpc.invoke(address, request(GetClusterView()))
        memory_before = server.memory_info().rss
        campaign = Campaign(address, seed, seconds)
        peak = asyncio.create_task(_peak_memory(server, campaign))
        await campaign.run()
        memory_peak = await peak
        brokers_left = await _brokers_left(NameServers([address], rpc))
    memory_after = server.memory_info().rss
    process.terminate()
    exit_code = await process.wait()
    if brokers_left:
        campaign.failures.append(f"brokers left: {brokers_left}")
    if memory_after - memory_before > MEMORY_GROWTH_BYTES_MAX:
        campaign.failures.append(f"memory grew by {memory_after - memory_before} bytes")
    if exit_code != 0:
        campaign.failures.append(f"the server ended with {exit_code}")
    return {
        "outcome": "failed" if campaign.failures else "passed",
        "seconds": seconds,
        "seed": seed,
        "orbitmq": __version__,
        "python": platform.python_version(),
        "counts": dict(campaign.counts),
        "memory_mib": {
            "before": round(memory_before / 2**20, 1),
            "peak": round(memory_peak / 2**20, 1),
            "after": round(memory_after / 2**20, 1),
        },
        "failures": campaign.failures,
    }


async def _until_it_answers(rpc: RpcClient, address: str) -> None:
    for _ in range(100):
        with contextlib.suppress(OrbitError):
            await rpc.invoke(address, request(GetClusterView()))
            return
        await CLOCK.sleep_ms(100)
    raise SystemExit("the name server does not answer")


async def _peak_memory(server: psutil.Process, campaign: Campaign) -> int:
    peak = 0
    while campaign.running:
        peak = max(peak, server.memory_info().rss)
        await CLOCK.sleep_ms(100)
    return peak


async def _brokers_left(servers: NameServers) -> list[str]:
    """Wait for the brokers' connections to be noticed as closed; name those that stay."""
    left: list[str] = []
    for _ in range(50):
        left = sorted((await servers.cluster_view()).brokers)
        if not left:
            break
        await CLOCK.sleep_ms(100)
    return left


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS / "name-server.json")
    arguments = parser.parse_args()
    result = asyncio.run(soak(arguments.seconds, arguments.seed))
    text = json.dumps(result, indent=2)
    print(text)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text + "\n", encoding="utf-8")
    return 0 if result["outcome"] == "passed" else 1


if __name__ == "__main__":
    sys.exit(main())
