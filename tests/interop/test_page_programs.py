"""The Java and Go programs on our pages run as they stand, at our broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.client import Message, Producer
from tests.integration.docs.pages import ROOT, blocks
from tests.integration.filterserver import plugins
from tests.interop import wire
from tests.interop.building import LINES, is_set
from tests.interop.official import java_command
from tests.interop.ours import OrbitFilterServer
from tests.interop.page_programs import (
    PROGRAMS,
    PageProgram,
    go_programs,
    java_classes,
    java_main,
    runnable,
)
from tests.interop.peers import OurCluster, StartOurCluster
from tests.interop.processes import ChildProcess

pytestmark = pytest.mark.interop

PROGRAM_TIMEOUT_S = 150
# Programs on pages keep the usual time limit of a call, three seconds.
TRIES = 3
TIMED_OUT = re.compile(r"time(d )?-?out|deadline exceeded", re.IGNORECASE)


@pytest.fixture
def cluster(start_our_cluster: StartOurCluster, program: PageProgram) -> OurCluster:
    """A cluster for one program: those of other pages use the same topics and groups."""
    made = start_our_cluster(brokers=1, **program.options)
    for topic in program.topics:
        made.broker.create_topic(topic)
    if program.messages:
        with Producer("pages", namesrv=made.name_server.address) as producer:
            for topic, body in program.messages.items():
                producer.send(Message(topic, body))
    return made


@pytest.fixture
def filter_server(
    program: PageProgram, cluster: OurCluster, tmp_path: Path
) -> Iterator[OrbitFilterServer | None]:
    """The filter server that a program needs, if it does, with the function on its page."""
    if not program.filters:
        yield None
        return
    folder = tmp_path / "filter-server"
    page = blocks([ROOT / program.page])
    function = next(block.code for block in page if block.language == "python")
    plugins.write_package(folder / "plugins", "page_filters", function, dict(program.filters))
    made = OrbitFilterServer(folder, cluster.broker, folder / "plugins")
    made.start()
    yield made
    made.process.stop()


def run(program: PageProgram, command: list[str], cluster: OurCluster, folder: Path) -> None:
    """Run a program, again if the machine stood still for longer than a call of it may take."""
    for tries_left in reversed(range(TRIES)):
        process = ChildProcess(
            f"{program.page} in {program.language}",
            command,
            folder,
            environment={"NAMESRV_ADDR": cluster.name_server.address, "HOME": str(folder)},
        )
        process.console.unlink(missing_ok=True)
        try:
            run_once(program, process, cluster)
        except (AssertionError, ChildProcessError):
            if not tries_left or not TIMED_OUT.search(process.console.read_text(errors="replace")):
                raise
        else:
            return


def run_once(program: PageProgram, process: ChildProcess, cluster: OurCluster) -> None:
    """Run a program, and look for its lines among what its client logs."""
    broker = cluster.broker.address
    before = {topic: wire.max_offset(broker, topic, 0) for topic in program.fills}
    process.start()
    try:
        for line in program.prints:
            process.wait_printed(line, timeout_s=PROGRAM_TIMEOUT_S)
        for topic in program.fills:
            wire.wait_above(broker, topic, 0, before[topic], timeout_s=PROGRAM_TIMEOUT_S)
        if program.ends:
            assert process.popen.wait(PROGRAM_TIMEOUT_S) == 0, process.tail()
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("program", "line"),
    [
        pytest.param(program, line, id=f"{program}-{line}")
        for program in PROGRAMS
        if program.language == "java"
        for line in LINES
        if line in program.lines
    ],
)
@pytest.mark.usefixtures("filter_server")
def test_a_java_program_runs(
    program: PageProgram, line: str, cluster: OurCluster, tmp_path: Path
) -> None:
    command = java_command(
        line,
        "client",
        tmp_path,
        java_main(runnable(program)),
        properties=[f"pages.namesrv={cluster.name_server.address}"],
        classes=java_classes(line),
    )

    run(program, command, cluster, tmp_path)


@pytest.mark.skipif(is_set("ORBITMQ_NO_GO"), reason="the Go client is left out")
@pytest.mark.parametrize("program", [each for each in PROGRAMS if each.language == "go"], ids=str)
def test_a_go_program_runs(program: PageProgram, cluster: OurCluster, tmp_path: Path) -> None:
    executable = go_programs() / runnable(program).name

    run(program, [str(executable)], cluster, tmp_path)
