"""The page of filter servers: its function is installed as it says, its consumer gets what it says."""

from __future__ import annotations

import asyncio
import builtins
import os
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.client import Message, Producer
from orbitmq.embedded import Cluster
from tests.integration.docs.pages import ROOT, SHOWN_ADDRESS, blocks
from tests.integration.filterserver.conftest import start_filter_server
from tests.integration.filterserver.plugins import write_package
from tests.waiting import WAIT_SECONDS

PAGE = ROOT / "docs" / "clients" / "filter-servers.md"


def code_of(language: str) -> list[str]:
    return [block.code for block in blocks([PAGE]) if block.language == language]


async def beside_a_filter_server(broker: str, work: Callable[[], None]) -> None:
    server = await start_filter_server(broker)
    try:
        await asyncio.to_thread(work)
    finally:
        await server.stop()


def test_the_consumer_of_the_page_gets_what_its_function_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function, consumer = code_of("python")
    (offered,) = tomllib.loads(code_of("toml")[0])["project"]["entry-points"].values()
    ((name, place),) = offered.items()
    package, _, attribute = place.partition(":")
    write_package(tmp_path, package, function, {name: attribute})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path) + os.pathsep + os.environ.get("PYTHONPATH", ""))
    printed: list[str] = []
    got_one = threading.Event()

    def note(*words: str) -> None:
        printed.append(" ".join(words))
        got_one.set()

    def enter(_prompt: str) -> str:
        assert got_one.wait(WAIT_SECONDS)
        return ""

    monkeypatch.setattr(builtins, "input", enter)
    with Cluster() as cluster:
        cluster.create_topic("shipments", queues=1)
        with Producer("depot", namesrv=cluster.namesrv) as producer:
            for weight in (3, 800, 12):
                producer.send(Message("shipments", f'{{"weight_kg": {weight}}}'))
        source = consumer.replace(SHOWN_ADDRESS, cluster.namesrv)
        names = {"__name__": "example", "print": note}
        run = compile(source, str(PAGE), "exec")

        asyncio.run(beside_a_filter_server(cluster.broker().address, lambda: exec(run, names)))

    assert printed == ['a truck for {"weight_kg": 800}']
