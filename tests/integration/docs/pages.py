"""What pages show: blocks of code and commands, and whether output is as they show it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "benchmarks" / "README.md",
        ROOT / "examples" / "sample_project" / "README.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/clients/*.md"),
    ]
)
# The address that the pages show, in whose place that of a cluster under test is put.
SHOWN_ADDRESS = "127.0.0.1:9876"

# What differs from one run to the next.
_VARYING = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+[+-]\d\d:\d\d"), "TIME"),
    (re.compile(r"\b[0-9A-F]{16,}\b"), "ID"),
    (re.compile(r"\d+(\.\d+)?"), "N"),
    (re.compile(r"\s+"), " "),
)


# A row of the table of exit codes: code, meaning, example.
_EXIT_CODE = re.compile(r"^\| (\d+) \| .* \| `(orbitmq [^`]*)`.*\|$", re.MULTILINE)


class Block(NamedTuple):
    """A piece of code, and where it begins."""

    page: Path
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_for_spark(self) -> bool:
        """Whether it is a program that the Spark suite runs, alone or after others of its page."""
        on_spark = self.page.name.startswith("spark") or "orbitmq.spark" in self.code
        return self.language == "python" and on_spark


@dataclass(frozen=True)
class Command:
    """A command as a page shows it, with the output that it shows, if any."""

    place: str
    text: str
    shown: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.place} {self.text}"


def blocks(pages: Iterable[Path] = PAGES) -> Iterator[Block]:
    """Find the blocks of pages."""
    for page in pages:
        text = page.read_text()
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, found.start()) + 2
            yield Block(page, line, found[1], found[2])


def block_commands(pages: Iterable[Path] = PAGES) -> Iterator[Command]:
    """Find the commands of the blocks of pages, in their order."""
    for block in blocks(pages):
        if block.language == "sh":
            for line in block.code.splitlines():
                if text := re.sub(r"\s+#.*", "", line).strip():
                    yield Command(str(block), text)
        elif block.language == "console":
            for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
                text, *shown = part.splitlines()
                yield Command(str(block), text, tuple(shown))


def inline_commands(pages: Iterable[Path] = PAGES) -> Iterator[Command]:
    """Find whole commands in the text of pages: `orbitmq`, a noun, and more."""
    for page in pages:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        text = _EXIT_CODE.sub("", text)
        for found in re.findall(r"`(orbitmq(?: [^`|…\[]+)+)`", text):
            if len(found.split()) > 2:
                yield Command(str(page.relative_to(ROOT)), found)


def exit_codes(page: Path) -> Iterator[tuple[int, Command]]:
    """Find the exit codes that a page promises, each with a command."""
    for code, text in _EXIT_CODE.findall(page.read_text()):
        yield int(code), Command(f"{page.relative_to(ROOT)} exit {code}", text)


def shape(lines: Iterable[str]) -> set[str]:
    """What lines have in common from run to run: all but numbers, times and ids."""
    shapes = set()
    for line in lines:
        text = line
        for pattern, name in _VARYING:
            text = pattern.sub(name, text)
        shapes.add(text.strip())
    return shapes - {""}
