"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scripts.generate_docs import pages

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "orbitmq"
MODULES = sorted(SOURCE.rglob("*.py"))
BANNED_NAMES = {"utils", "common", "helpers", "misc", "base", "impl", "manager", "data", "info"}
# Modules without a test file of their own, each with its reason.
TESTED_ELSEWHERE = {
    "errors.py": "classes without behaviour; every message is asserted where it is raised",
    "version.py": "one constant",
    "filtering/expression.py": "nodes without behaviour; the tests of the parser assert them",
    "cli/main.py": "tests/integration/cli runs the installed command",
    "cli/logs.py": "tests/integration/cli reads what it writes",
    "cli/namesrv.py": "tests/integration/cli runs the installed command",
    "cli/store.py": "tests/integration/cli runs the installed command",
    "cli/broker.py": "tests/integration/cli runs the installed command",
    **{
        f"cli/{name}.py": "tests/integration/cli/test_administering.py runs the commands"
        for name in (
            "administering",
            "brokers",
            "cluster",
            "group",
            "group_members",
            "kv",
            "message",
            "message_trials",
            "name_servers",
            "offset",
            "topic",
            "topic_details",
        )
    },
    "cli/up.py": "tests/integration/cli runs the installed command",
    "cli/supervisor.py": "tests/integration/cli kills what it watches",
    "cli/serving.py": "tests/integration/cli runs servers by the installed command",
    "embedded/local_broker.py": "tests/unit/embedded/test_faults.py kills and restarts it",
    **{
        f"client/aio/admin/{name}.py": "tests/integration/client/test_admin.py asks servers"
        for name in (
            "admin",
            "brokers",
            "groups",
            "key_values",
            "messages",
            "name_servers",
            "offsets",
            "reach",
            "topics",
            "traffic",
        )
    },
    "broker/app.py": "tests/integration/broker starts it for every test",
    "broker/config.py": "a table; each option is tested where it has its effect",
    "broker/figures.py": "tests/integration asks as tools and as Prometheus do",
    "broker/hot_path.py": "tests/integration/broker sends and pulls both ways over sockets",
    "broker/registration.py": "tests/integration/broker runs it against name servers",
    "broker/delivery/pulls.py": "tests/integration/broker pulls over a socket",
    "broker/handlers/clients.py": "tests/integration/broker asks each over a socket",
    "broker/handlers/committed_offsets.py": "tests/integration/broker asks each over a socket",
    "broker/handlers/groups.py": "tests/integration/broker asks each over a socket",
    "broker/handlers/locks.py": "tests/integration/broker asks each over a socket",
    "broker/handlers/pulling.py": "tests/integration/broker asks each over a socket",
    "broker/handlers/queries.py": "tests/integration/broker asks each over a socket",
    "broker/handlers/queue_offsets.py": "tests/integration/broker asks each over a socket",
    "broker/handlers/retries.py": "tests/integration/broker asks each over a socket",
    **{
        f"broker/exactly_once/{name}.py": "tests/integration/broker/test_staged_writes.py"
        for name in ("assembly", "deciding", "moving", "query_states")
    },
    "broker/exactly_once/broker_addresses.py": "tests/integration/client/test_staged_writer.py",
    "client/aio/staged_writer.py": "tests/integration/client commits batches with it",
    "broker/handlers/staged_writes.py": "tests/integration/broker asks each over a socket",
    "broker/handlers/sending.py": "tests/integration/broker asks each over a socket",
    "broker/handlers/topics.py": "tests/integration/broker asks each over a socket",
    "client/options.py": "a table; each option is tested where it has its effect",
    "client/aio/members.py": "Protocols without code",
    "client/aio/producer.py": "tests/integration/client sends with it to brokers",
    "client/sync/lite_pull_consumer.py": "tests/integration/client polls brokers with it",
    "client/sync/pull_consumer.py": "tests/integration/client pulls from brokers with it",
    "client/sync/queue_lookups.py": "tests/integration/client asks brokers with it",
    "client/sync/push_consumer.py": "tests/integration/client consumes from brokers with it",
    "client/sync/producer.py": "tests/integration/client sends with it to brokers",
    "client/aio/send_targets.py": "tests/integration/client sends with it to brokers",
    "client/aio/sender.py": "tests/integration/client sends with it to brokers",
    "client/aio/sending.py": "tests/integration/client sends with it to brokers",
    "client/aio/brokers.py": "tests/integration/client asks each over a socket",
    "client/aio/client_instance.py": "tests/integration/client runs it against servers",
    "client/aio/heartbeats.py": "tests/integration/client runs it against brokers",
    "client/aio/server_calls.py": "tests/integration/client has brokers ask each over a socket",
    "client/aio/lite_pull_consumer.py": "tests/integration/client polls a real broker with it",
    "client/aio/lite_pull_member.py": "tests/integration/client polls a real broker with it",
    "client/aio/pull_consumer.py": "tests/integration/client pulls from a real broker with it",
    "client/aio/record_reader.py": "tests/integration/client reads brokers with it",
    "client/sync/record_reader.py": "tests/integration/client reads brokers with it",
    "client/aio/queue_lookups.py": "tests/integration/client asks a real broker each question",
    "client/aio/consumption.py": "Protocols without code",
    "client/aio/pulling.py": "tests/integration/client pulls from a broker",
    "client/aio/push_consumer.py": "tests/integration/client consumes from a broker",
    "client/aio/push_member.py": "tests/integration/client consumes from a broker",
    "client/aio/running.py": "tests/integration/client asks it through a broker",
    "store/config.py": "a table; each option is tested where it has its effect",
    "nameserver/app.py": "tests/integration/nameserver starts it for every test",
    "nameserver/config.py": "a table; each option is tested where it has its effect",
    "nameserver/handlers.py": "tests/integration/nameserver asks each over a socket",
    "transport/config.py": "a table; each option is tested where it has its effect",
    "transport/hooks.py": "a Protocol without code",
}


def _relative(module: Path) -> str:
    return module.relative_to(ROOT / "src" / "orbitmq").as_posix()


@pytest.mark.parametrize("module", MODULES, ids=_relative)
def test_a_module_says_in_one_line_what_it_holds(module: Path) -> None:
    docstring = ast.get_docstring(ast.parse(module.read_text()))

    assert docstring
    first_line = docstring.partition("\n")[0]
    assert len(first_line) <= 80
    assert first_line.endswith(".")


@pytest.mark.parametrize("module", MODULES, ids=_relative)
def test_a_module_name_says_something(module: Path) -> None:
    assert not BANNED_NAMES & set(module.stem.split("_"))


@pytest.mark.parametrize("module", [m for m in MODULES if m.name != "__init__.py"], ids=_relative)
def test_a_module_has_a_test_file_of_its_own(module: Path) -> None:
    relative = Path(_relative(module))
    own_test = ROOT / "tests" / "unit" / relative.parent / f"test_{relative.name}"

    if relative.as_posix() in TESTED_ELSEWHERE:
        assert not own_test.exists(), "it has one now: take it off the list"
    else:
        assert own_test.exists()


@pytest.mark.parametrize("path", sorted(pages()), ids=lambda path: path.name)
def test_a_generated_page_is_up_to_date(path: Path) -> None:
    assert path.read_text() == pages()[path], "run: make docs"


def test_the_readme_opens_with_two_commands_that_the_makefile_knows() -> None:
    first_block = (ROOT / "README.md").read_text().split("```")[1]
    targets = re.findall(r"^make (\w+)", first_block, re.MULTILINE)

    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_files_that_the_architecture_names_are_there() -> None:
    # A row names files by their path below the package, or beside the one named before.
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", (ROOT / "ARCHITECTURE.md").read_text()))
    there = {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")}
    ends = {path.rpartition("/")[2] for path in there}

    gone = [path for path in named if path not in there and ("/" in path or path not in ends)]

    assert gone == []


def test_links_in_the_docs_lead_somewhere() -> None:
    pages_with_links = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/**/*.md")]

    broken = [
        f"{page.name}: {target}"
        for page in pages_with_links
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
        if not (page.parent / target).exists()
    ]

    assert broken == []


@pytest.mark.parametrize(
    ("index", "pages_of_it"),
    [("docs/README.md", "docs/*.md"), ("docs/clients.md", "docs/clients/*.md")],
)
def test_an_index_lists_every_page(index: str, pages_of_it: str) -> None:
    listed = re.findall(r"\]\(([^)#]+\.md)", (ROOT / index).read_text())
    there = {ROOT / index, *((ROOT / index).parent / target for target in listed)}

    assert [page.name for page in ROOT.glob(pages_of_it) if page not in there] == []
