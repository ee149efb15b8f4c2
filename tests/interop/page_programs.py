"""The Java and Go programs on our pages: one row each, all of a language compiled together.

A block of a page is a whole program (it has a class, or `package main`) or the statements of one:
then imports, `main` and, in Java, the exit are put around it. In Java, every class of the packages
in `_JAVA_PACKAGES` is imported; in Go, the packages of `_GO_PACKAGES` that it mentions. The address
that pages show becomes that of the cluster under test when the program runs.

To add a program: write it on its page, add a row to `PROGRAMS`, and run
`INTEROP=1 .venv/bin/python -m pytest -n0 tests/interop/test_page_programs.py -k PAGE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.integration.docs.pages import PAGES, ROOT, SHOWN_ADDRESS, Block, blocks
from tests.interop import building
from tests.interop.building import GO_FOLDER, LINES, TARGET_FOLDER

LANGUAGES = ("java", "go")


@dataclass(frozen=True, kw_only=True)
class PageProgram:
    """A program on a page, and what is seen when it runs."""

    page: str  # below the root of the project
    language: str  # "java" or "go"
    prints: tuple[str, ...] = ()  # texts that it prints, among others, in any order
    number: int = 1  # of the programs of this language on the page
    topics: tuple[str, ...] = ()  # created before
    messages: Mapping[str, str] = field(default_factory=dict)  # topic to body: sent before
    fills: tuple[str, ...] = ()  # topics whose queue 0 gets a message
    ends: bool = (
        True  # whether it ends by itself; it is killed when it has printed its lines, if not
    )
    lines: tuple[str, ...] = LINES  # Java's release lines that have the feature
    options: Mapping[str, str] = field(default_factory=dict)  # of a broker of its own
    # Filter classes of a filter server, each a function of the page's first Python block.
    filters: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{Path(self.page).stem}-{self.number}"


PROGRAMS = (
    PageProgram(
        page="README.md",
        language="java",
        prints=("hello",),
        topics=("orders",),
        ends=False,
    ),
    *(
        PageProgram(
            page="docs/clients/request-reply.md",
            language=language,
            prints=("a chair costs 12.50",),
            topics=("price-requests",),
        )
        for language in LANGUAGES
    ),
    # Java's clients of the 4.9 line have no due times.
    PageProgram(
        page="docs/clients/due-times.md",
        language="java",
        prints=("taken back: ",),
        topics=("reminders",),
        lines=("v5",),
    ),
    PageProgram(
        page="docs/clients/due-times.md",
        language="go",
        prints=("due later: ",),
        topics=("reminders",),
    ),
    *(
        PageProgram(
            page="docs/clients/dead-letters.md",
            language=language,
            topics=("orders",),
            messages={"orders": "without a key"},
            fills=("%DLQ%billing",),
            ends=False,
        )
        for language in LANGUAGES
    ),
    *(
        PageProgram(
            page="docs/clients/ordered.md",
            language=language,
            prints=("order 7 is created", "order 7 is paid", "order 7 is shipped"),
            topics=("order-steps",),
            ends=language == "go",
        )
        for language in LANGUAGES
    ),
    *(
        PageProgram(
            page="docs/clients/transactions.md",
            language=language,
            prints=(line,),
            topics=("orders",),
        )
        for language, line in (("java", "COMMIT_MESSAGE"), ("go", "committed: true"))
    ),
    PageProgram(
        page="docs/clients/filter-servers.md",
        language="java",
        prints=('a truck for {"weight_kg": 800}',),
        topics=("shipments",),
        messages={"shipments": '{"weight_kg": 800}'},
        ends=False,
        filters={"org.example.HeavyShipments": "is_heavy"},
    ),
    *(
        PageProgram(
            page="docs/clients/tracing.md",
            language=language,
            prints=("traced",),
            topics=("orders",),
            options={"traceTopicEnable": "true"},
        )
        for language in LANGUAGES
    ),
)

# What is not run, each with the reason.
NOT_RUN: Mapping[tuple[str, str], str] = {}


class Runnable(NamedTuple):
    """A program of the table with its text, and the name under which it is compiled."""

    row: PageProgram
    name: str
    source: str


def foreign_blocks() -> Iterator[Block]:
    """Find the Java and Go blocks of all pages."""
    return (block for block in blocks(PAGES) if block.language in LANGUAGES)


def place(block: Block) -> tuple[str, str]:
    """The page and the language of a block."""
    return str(block.page.relative_to(ROOT)), block.language


def runnable(row: PageProgram) -> Runnable:
    """Find the program of a row on its page."""
    found = [block for block in foreign_blocks() if place(block) == (row.page, row.language)]
    name = f"{re.sub(r'[^a-z]', '_', Path(row.page).stem.lower())}_{row.number}"
    code = found[row.number - 1].code
    source = _java(code, name, ends=row.ends) if row.language == "java" else _go(code)
    return Runnable(row, name, source)


# --- The text around statements ------------------------------------------------------------------

_JAVA_PACKAGES = (
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "org.apache.rocketmq.client.consumer",
    "org.apache.rocketmq.client.consumer.listener",
    "org.apache.rocketmq.client.exception",
    "org.apache.rocketmq.client.producer",
    "org.apache.rocketmq.client.utils",
    "org.apache.rocketmq.common.consumer",
    "org.apache.rocketmq.common.message",
)
_GO_MODULE = "github.com/apache/rocketmq-client-go/v2"
_GO_PACKAGES = {
    **{name: name for name in ("context", "errors", "fmt", "os", "strconv", "strings", "sync")},
    "atomic": "sync/atomic",
    "time": "time",
    "rocketmq": _GO_MODULE,
    **{name: f"{_GO_MODULE}/{name}" for name in ("admin", "consumer", "primitive", "producer")},
}
# A declaration at the left edge, up to the line that ends it there.
_GO_DECLARATION = re.compile(
    r"^(?:func|type|var|const) .*(?:[{(]\n(?:.*\n)*?[})]$|$)", re.MULTILINE
)
_JAVA_IMPORT = re.compile(r"^import .*;\n", re.MULTILINE)
_GO_ADDRESS = 'package main\n\nimport "os"\n\nvar nameServer = os.Getenv("NAMESRV_ADDR")\n'


def _java(code: str, name: str, *, ends: bool) -> str:
    """A Java program in a package of its own."""
    code = code.replace(f'"{SHOWN_ADDRESS}"', 'System.getProperty("pages.namesrv")')
    if re.search(r"^(?:public |final )*class ", code, re.MULTILINE):
        return f"package {name};\n{code}"
    imports = [f"import {package}.*;\n" for package in _JAVA_PACKAGES]
    imports += _JAVA_IMPORT.findall(code)
    return (
        f"package {name};\n{''.join(imports)}public class Program {{\n"
        f"public static void main(String[] arguments) throws Exception {{\n"
        f"{_JAVA_IMPORT.sub('', code)}"
        # The threads of a client outlive `main`.
        f"{'System.exit(0);' if ends else ''}\n}}\n}}\n"
    )


def _go(code: str) -> str:
    """A Go program."""
    code = code.replace(f'"{SHOWN_ADDRESS}"', "nameServer")
    if code.startswith("package main"):
        return code
    imports = [
        f'import "{path}"\n'
        for name, path in _GO_PACKAGES.items()
        if re.search(rf"\b{name}\.[A-Z]", code)
    ]
    declarations = "\n".join(_GO_DECLARATION.findall(code))
    statements = _GO_DECLARATION.sub("", code)
    return f"package main\n\n{''.join(imports)}\n{declarations}\nfunc main() {{\n{statements}}}\n"


# --- Compiling -----------------------------------------------------------------------------------


def java_classes(line: str) -> Path:
    """Compile the Java programs against a release line, unless it is done."""
    folder = TARGET_FOLDER / line / "pages"
    sources = [
        (f"{made.name}/{_class_name(made)}.java", made.source)
        for made in _runnables("java")
        if line in made.row.lines
    ]
    classes = folder / "classes"
    jars = f"{TARGET_FOLDER / line / 'lib-client'}/*"
    files = [f"sources/{path}" for path, _ in sources]
    command = ["javac", "-nowarn", "-cp", jars, "-d", str(classes), *files]
    building.compile_texts(folder, {f"sources/{path}": text for path, text in sources}, command)
    return classes


def java_main(made: Runnable) -> str:
    """The class to run."""
    return f"{made.name}.{_class_name(made)}"


def go_programs() -> Path:
    """Compile the Go programs, unless it is done; each is a file of its name in the folder."""
    folder = GO_FOLDER / "bin" / "pages"
    programs = folder / "programs"
    texts = {}
    for made in _runnables("go"):
        texts[f"{made.name}/main.go"] = made.source
        texts[f"{made.name}/address.go"] = _GO_ADDRESS
    for name in ("go.mod", "go.sum"):
        texts[name] = (GO_FOLDER / name).read_text()
    command = ["go", "build", "-mod=mod", "-trimpath", "-o", f"{programs}/", "./..."]
    building.compile_texts(folder, texts, command)
    return programs


def _runnables(language: str) -> Iterable[Runnable]:
    return [runnable(row) for row in PROGRAMS if row.language == language]


def _class_name(made: Runnable) -> str:
    found = re.search(r"^public (?:final )?class (\w+)", made.source, re.MULTILINE)
    assert found is not None, made.source
    return found[1]
