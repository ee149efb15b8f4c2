"""The Java and Go programs on our pages run as they stand, at our broker."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.docs.pages import ROOT, SHOWN_ADDRESS, Block, blocks
from tests.interop.building import GO_FOLDER, LINES, is_set
from tests.interop.official import java_command
from tests.interop.peers import OurCluster

pytestmark = pytest.mark.interop

PROGRAM_TIMEOUT_S = 150
# By page: the topics that its programs use, and what each of them prints.
PAGES = {"request-reply.md": (["price-requests"], "a chair costs 12.50")}


def programs(language: str, beginning: str) -> list[Block]:
    """The whole programs of the pages, in one language."""
    pages = [ROOT / "docs" / "clients" / name for name in PAGES]
    return [
        block
        for block in blocks(pages)
        if block.language == language and block.code.startswith(beginning)
    ]


def run(block: Block, program: Path, command: list[str], cluster: OurCluster, folder: Path) -> None:
    """Run a program, and look for its output among what its client logs."""
    topics, expected = PAGES[block.page.name]
    for topic in topics:
        cluster.broker.create_topic(topic)
    program.write_text(block.code.replace(SHOWN_ADDRESS, cluster.name_server.address))
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert expected in done.stdout.splitlines(), done.stdout + done.stderr


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("block", programs("java", "import"), ids=str)
def test_a_java_program_runs(
    block: Block, line: str, our_cluster: OurCluster, tmp_path: Path
) -> None:
    program = tmp_path / "Program.java"

    run(
        block,
        program,
        java_command(line, "client", tmp_path, str(program)),
        our_cluster,
        tmp_path,
    )


@pytest.mark.skipif(is_set("ORBITMQ_NO_GO"), reason="the Go client is left out")
@pytest.mark.parametrize("block", programs("go", "package main"), ids=str)
def test_a_go_program_runs(block: Block, our_cluster: OurCluster, tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(GO_FOLDER / name, tmp_path / name)
    program = tmp_path / "main.go"

    run(block, program, ["go", "run", "-mod=mod", "."], our_cluster, tmp_path)
