"""Every Python block of the pages for users runs as it stands, against a real cluster."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.client import Admin, Message, Producer
from orbitmq.embedded import Cluster
from orbitmq.model.groups import GroupConfig
from tests.integration.docs.pages import ROOT, SHOWN_ADDRESS, Block, blocks

# Pages whose Python is not run here, each with the reason.
NOT_RUN = {
    ROOT
    / "docs"
    / "store.md": "reads a store folder: tests/unit/store/readonly/test_readonly_store.py does",
    ROOT
    / "docs"
    / "replication.md": "wants a slave: tests/integration/cli/test_broker_promote.py has some",
    ROOT
    / "docs"
    / "clients"
    / "filter-servers.md": "wants a filter server: test_filter_server_page.py has one",
}
PROGRAM_TIMEOUT_S = 150


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with Cluster() as cluster:
        address = cluster.namesrv
        # What the pages read is there.
        with Producer("by-hand", namesrv=address) as producer:
            for topic in (
                "orders", "order-steps", "price-changes", "price-requests", "clicks", "reminders"
            ):  # fmt: skip
                producer.send(Message(topic, "a first one", tags="paid"))
        # Groups are made by their consumers, which other blocks are.
        with Admin(namesrv=address) as admin:
            admin.groups.create(GroupConfig(name="billing"))
        yield address


@pytest.mark.parametrize(
    "block",
    [
        block
        for block in blocks()
        if block.language == "python" and block.page not in NOT_RUN and not block.is_for_spark
    ],
    ids=str,
)
def test_a_block_runs(
    block: Block, namesrv: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(builtins, "input", lambda _prompt="": "")
    monkeypatch.setenv("HOME", str(tmp_path))
    # Errors shall point at the line of the page.
    source = "\n" * (block.line - 1) + block.code.replace(SHOWN_ADDRESS, namesrv)

    if "__main__" in source:
        # Its worker processes look for the program it is in.
        program = tmp_path / "program.py"
        program.write_text(source)
        subprocess.run([sys.executable, program], check=True, timeout=PROGRAM_TIMEOUT_S)
    else:
        exec(compile(source, str(block.page), "exec"), {"__name__": "example"})
