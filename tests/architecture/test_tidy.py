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


def _relative(module: Path) -> str:
    return module.relative_to(SOURCE).as_posix()


def test_every_module_says_in_one_line_what_it_holds() -> None:
    silent = []
    for module in MODULES:
        first_line = (ast.get_docstring(ast.parse(module.read_text())) or "").partition("\n")[0]
        if not first_line.endswith(".") or len(first_line) > 80:
            silent.append(f"{_relative(module)}: {first_line!r}")

    assert silent == [], "the first line of a docstring: up to 80 characters, with a full stop"


def test_the_name_of_every_module_says_something() -> None:
    vague = [_relative(module) for module in MODULES if BANNED_NAMES & set(module.stem.split("_"))]

    assert vague == []


def test_generated_pages_are_up_to_date() -> None:
    stale = [path.name for path, text in pages().items() if path.read_text() != text]

    assert stale == [], "run: make docs"


def test_the_readme_opens_with_two_commands_that_the_makefile_knows() -> None:
    first_block = (ROOT / "README.md").read_text().split("```")[1]
    targets = re.findall(r"^make (\w+)", first_block, re.MULTILINE)

    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_the_page_of_soak_runs_lists_every_campaign_with_its_time_and_page() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipes = dict(re.findall(r"^(soak-\w+):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE))
    campaigns = {}
    for target, recipe in recipes.items():
        rounds = re.search(r"for round in ([\d ]+);", recipe)
        minutes = re.search(r"at_most,(\d+)", recipe)
        assert minutes, f"{target} has no limit"
        campaigns[target] = (
            int(minutes[1]) * (len(rounds[1].split()) if rounds else 1),
            re.findall(r"docs/soak/([\w.-]+)", recipe),
        )
    run = re.findall(r"^SOAK := .*soak-,((?:.|\n)*?)\)", makefile, re.MULTILINE)[0]
    page = (ROOT / "docs" / "soak" / "README.md").read_text()

    listed = {
        target: (int(minutes), re.findall(r"\(([\w-]+\.md)\)", result))
        for target, minutes, result in re.findall(
            r"^\| `(soak-\w+)` \| (\d+) \| ([^|]*) \|", page, re.MULTILINE
        )
    }

    assert listed == campaigns
    assert [f"soak-{name}" for name in re.findall(r"\w+", run)] == list(listed)


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
