"""Every Python block of the pages for users runs as it stands, against a real cluster."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from orbitmq.client import Message, Producer
from orbitmq.embedded import Cluster

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "docs" / "clients.md", *ROOT.glob("docs/clients/*.md")]
# The address that the pages show, in whose place the cluster's own is put.
SHOWN_ADDRESS = "127.0.0.1:9876"
# Languages of blocks that are not run here.
OTHERS = {"sh", "java", ""}
PROGRAM_TIMEOUT_S = 50


class Block(NamedTuple):
    """A piece of code, and where it begins."""

    page: Path
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in sorted(PAGES):
        text = page.read_text()
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, found.start()) + 2
            yield Block(page, line, found[1], found[2])


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with Cluster() as cluster:
        address = cluster.namesrv
        # What the pages read is there.
        with Producer("by-hand", namesrv=address) as producer:
            for topic in ("orders", "order-steps", "price-changes", "clicks", "reminders"):
                producer.send(Message(topic, "a first one", tags="paid"))
        yield address


def test_every_block_says_its_language() -> None:
    unknown = [str(block) for block in blocks() if block.language not in {*OTHERS, "python"}]

    assert unknown == []


@pytest.mark.parametrize(
    "block", [block for block in blocks() if block.language == "python"], ids=str
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
