"""Write the generated pages from the tables in the code; --check only compares.

docs/configuration.md     from the config classes
docs/spark-options.md     from the classes of Spark options
docs/compatibility.md     from the table of request codes, and what the interop suite runs
docs/limits.md            from what each request costs, in limits_page.py
docs/modules.md           from the first line of every module
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import PLANNED, RequestCode, Role
from orbitmq.settings import Option, describe
from orbitmq.settings.rocketmq_options import REFUSED, WITHOUT_EFFECT
from scripts.limits_page import limits_page
from tests.interop.scenario_rows import recorded_scenarios

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"

MODULES_HEAD = """\
# Modules

<!-- Written by scripts/generate_docs.py from the first line of every module; change those. -->

One line for each module, by package. How they work together, and where to change what: \
[Architecture](../ARCHITECTURE.md).
"""

COMPATIBILITY_HEAD = """\
# Compatibility

<!-- Written by scripts/generate_docs.py from src/orbitmq/protocol/codes.py and \
tests/interop/scenarios.txt; change those. -->

What official RocketMQ clients, tools and brokers were [seen doing](#seen-working) with OrbitMQ, \
and which [request codes](#request-codes) OrbitMQ answers. Where it differs on purpose: \
[differences](differences.md).

## Seen working

Each row is a test that runs official RocketMQ beside OrbitMQ, in CI and with `make interop`. A \
run fails if one of them does not pass, or is missing from this page.
"""

PEER_HEADS = {
    ("java", "go"): "### Official clients with our servers\n\nJava and Go clients send to and "
    "consume from our brokers, or official ones, and get their routes from our name server.\n",
    ("mqadmin",): "### mqadmin\n\nThe official administration tool, with our servers.\n",
    (
        "broker",
    ): "### Official brokers\n\nThey register with our name server. They open our stores, and "
    "OrbitMQ opens theirs.\n",
    ("python",): "### Our clients and commands\n\nPython clients and the `orbitmq` command, with "
    "our broker and with official ones.\n",
}

PEER_NAMES = {"java": "Java", "go": "Go", "python": "broker"}

CODES_HEAD = """\
## Request codes

Every request code of RocketMQ, who receives it, and whether OrbitMQ supports it. A code that is \
refused, or planned for later, gets REQUEST_CODE_NOT_SUPPORTED (3) and a remark that says so. Codes \
21000 to 21299 are OrbitMQ's own. With a Java peer they fail with "this needs an OrbitMQ broker".
"""

HEAD = """\
# Configuration

<!-- Written by scripts/generate_docs.py from the config classes; change those. -->

A flag beats the environment, the environment beats the file, and the file beats the default.
The file is a Java properties file. An unknown name in it is an error that suggests the nearest one.
The environment sets an option with `ORBITMQ_listenPort` or `ORBITMQ_LISTEN_PORT` \
(`ORBITMQ_TLS_SERVER_MODE` for `tls.server.mode`). An empty variable counts as unset.

Times are in milliseconds, as names in Millis, Mills, Ms, Interval, Timeout, Period or Time mean, unless their row says otherwise. \
Seconds and Minutes are what they say. Sizes are in bytes. A name server reads `NameServerConfig`, \
`ServerConfig` and `TlsServerConfig`. A broker reads the latter two, and `BrokerConfig`, \
`MetricsConfig`, `StoreConfig`, `RetentionConfig` and `ReplicationConfig`; a filter server these two, and \
`FilterServerConfig`. `ClientConfig` and `TlsClientConfig` are about \
outgoing connections; only programs with an `RpcClient` of their own set them. Options of producers and consumers are at the \
[end](#options-of-producers-and-consumers).

A live option can be changed while the server runs. A guarded one can do harm, such as delete messages, \
and anybody who can connect could change it: it is live only if the server was started with \
`allowGuardedUpdates=true`. The others take effect at the next start.
"""

CLIENT_HEAD = """\
## Options of producers and consumers

A producer or consumer takes these as keyword arguments and checks them when it is created: \
`Producer("group", namesrv="127.0.0.1:9876")`. An option that is not given can come from the \
environment, under Java's name: `ORBITMQ_NAMESRV_ADDR` or `ORBITMQ_namesrvAddr` sets `namesrv`. \
All clients share `ClientOptions`; producers and consumers share `TracedOptions`; all consumers \
share `ConsumerOptions`.
"""

SPARK_HEAD = """\
# Options of the Spark formats

<!-- Written by scripts/generate_docs.py from the classes of options in src/orbitmq/spark. -->

Set them with `.option("name", value)`, or in SQL with `OPTIONS (name "value")`. Names are not case \
sensitive. An unknown name is an error that suggests the nearest one, also for names from Kafka's \
connector and from RocketMQ's Java clients. "Kafka's name" is the matching option of Spark's Kafka \
connector.
"""

WITHOUT_EFFECT_HEAD = """\
## RocketMQ options without effect

These are accepted with a warning, so that a file written for RocketMQ works. The same goes for \
every other option of RocketMQ 5.3.3 in a process that has no use for it, for example a broker \
option on a name server.
"""

REFUSED_HEAD = """\
## RocketMQ options that are refused

These promise features that are not built. A server does not start with any value but the harmless \
one.
"""


def config_classes() -> tuple[type[DataclassInstance], ...]:
    """List the config classes in the order of the page."""
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.replication.config import ReplicationConfig
    from orbitmq.broker.statistics.config import MetricsConfig
    from orbitmq.filterserver.config import FilterServerConfig
    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.retention import RetentionConfig
    from orbitmq.transport.config import (
        ClientConfig,
        ServerConfig,
        TlsClientConfig,
        TlsServerConfig,
    )

    return (
        NameServerConfig,
        BrokerConfig,
        MetricsConfig,
        StoreConfig,
        RetentionConfig,
        ReplicationConfig,
        FilterServerConfig,
        ServerConfig,
        TlsServerConfig,
        ClientConfig,
        TlsClientConfig,
    )


def client_option_classes() -> tuple[type[DataclassInstance], ...]:
    """List the classes that say what producers and consumers take."""
    from orbitmq.client import options

    return (
        options.ClientOptions,
        options.TracedOptions,
        options.ProducerOptions,
        options.ConsumerOptions,
        options.PushOptions,
        options.LitePullOptions,
        options.PullOptions,
    )


def spark_option_classes() -> tuple[tuple[str, type[DataclassInstance]], ...]:
    """List the classes that say what the Spark formats take, each under its heading."""
    from orbitmq.spark.options.read_options import ReadOptions
    from orbitmq.spark.options.spark_options import ConnectionOptions
    from orbitmq.spark.options.store_options import StoreOptions
    from orbitmq.spark.options.topic_options import TopicOptions
    from orbitmq.spark.options.write_options import WriteOptions

    return (
        ("`rocketmq`, reading and writing", ConnectionOptions),
        ("`rocketmq` and `rocketmq-store`, reading", TopicOptions),
        ("`rocketmq`, reading", ReadOptions),
        ("`rocketmq`, writing", WriteOptions),
        ("`rocketmq-store`, reading", StoreOptions),
    )


def spark_options_page(classes: Iterable[tuple[str, type[DataclassInstance]]]) -> str:
    """Write the page of the options of the Spark formats."""
    from orbitmq.spark.options.spark_options import kafka_name

    parts = [SPARK_HEAD]
    seen: set[str] = set()
    for heading, options_class in classes:
        rows = [row for row in describe(options_class) if row.field not in seen]
        seen.update(row.field for row in rows if options_class.__subclasses__())
        parts.append(f"## {heading}\n\n{inspect.getdoc(options_class) or ''}\n")
        parts.append(
            _table(
                ("option", "default", "range", "Kafka's name", "meaning"),
                (
                    (*_option_cells(row)[:3], _or_none(kafka_name(options_class, row)), row.doc)
                    for row in rows
                ),
            )
        )
    return "\n".join(parts)


def _or_none(name: str) -> str:
    return _code(name) if name else "none"


def configuration_page(classes: Iterable[type[DataclassInstance]]) -> str:
    """Write the page."""
    classes = tuple(classes)
    own = {row.name for row in describe(*classes)}
    parts = [HEAD]
    for config_class in classes:
        parts.append(f"## {config_class.__name__}\n\n{inspect.getdoc(config_class) or ''}\n")
        parts.append(
            _table(
                ("name", "default", "range", "live", "meaning"),
                (_option_cells(row) for row in describe(config_class)),
            )
        )
    parts.append(WITHOUT_EFFECT_HEAD)
    parts.append(
        _table(
            ("name", "read by", "RocketMQ's default", "why it has no effect"),
            (
                (_code(row.name), ", ".join(row.readers), _code(row.default), row.reason)
                for row in sorted(WITHOUT_EFFECT, key=lambda row: row.name)
                if row.reason and row.name not in own
            ),
        )
    )
    parts.append(REFUSED_HEAD)
    parts.append(
        _table(
            ("name", "read by", "harmless value", "why it is refused"),
            (
                (_code(row.name), ", ".join(row.readers), _code(row.harmless or ""), row.reason)
                for row in REFUSED
                if row.name not in own
            ),
        )
    )
    parts.append(CLIENT_HEAD)
    seen: set[str] = set()
    for options_class in client_option_classes():
        rows = [row for row in describe(options_class) if row.field not in seen]
        seen.update(row.field for row in rows if options_class.__subclasses__())
        if rows:
            parts.append(f"### {options_class.__name__}\n\n{inspect.getdoc(options_class) or ''}\n")
            parts.append(
                _table(
                    ("keyword", "default", "range", "Java's name", "meaning"),
                    (_keyword_cells(row) for row in rows),
                )
            )
    return "\n".join(parts)


def _keyword_cells(row: Option) -> tuple[str, ...]:
    _, default, limits, _, meaning = _option_cells(row)
    return _code(row.field), default, limits, _code(row.name), meaning


def _option_cells(row: Option) -> tuple[str, ...]:
    meaning = [row.doc]
    if row.environment:
        meaning.append(f"Also set by {', '.join(map(_code, row.environment))}.")
    if row.secret:
        meaning.append("A secret: hidden wherever settings are shown.")
    live = "guarded" if row.guarded else "yes" if row.live else "no"
    return _code(row.name), _code(row.default_text), row.limits, live, " ".join(meaning)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"{line}\n" for line in _table_lines(head, rows))


def _table_lines(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for cells in rows:
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _code(text: str) -> str:
    return f"`{text}`" if text else "(empty)"


def compatibility_page() -> str:
    """Write the page of what official peers were seen doing, and of request codes."""
    parts = [COMPATIBILITY_HEAD]
    for kinds, head in PEER_HEADS.items():
        parts += [head, _scenario_table(kinds)]
    rows = (
        (
            str(int(code)),
            _code(code.name),
            _roles(code.receivers),
            _status(code),
            code.purpose,
        )
        for code in sorted(RequestCode)
    )
    parts += [CODES_HEAD, _table(("code", "name", "received by", "here", "purpose"), rows)]
    return "\n".join(parts)


def _scenario_table(kinds: tuple[str, ...]) -> str:
    seen: dict[str, set[tuple[str, str]]] = {}
    for kind, version, scenario in recorded_scenarios():
        if kind in kinds:
            seen.setdefault(scenario, set()).add((kind, version))
    peers = sorted(set().union(*seen.values()), key=lambda peer: (kinds.index(peer[0]), peer[1]))
    return _table(
        ("scenario", *(f"{PEER_NAMES.get(kind, kind)} {version}" for kind, version in peers)),
        (
            (scenario, *("yes" if peer in by else "" for peer in peers))
            for scenario, by in sorted(seen.items())
        ),
    )


def _status(code: RequestCode) -> str:
    if code.answered_by:
        return f"supported by {_roles(code.answered_by)}"
    return "later" if code in PLANNED else "refused"


def _roles(roles: Role) -> str:
    return ", ".join(str(role.name).lower().replace("_", " ") for role in roles)


def module_map() -> str:
    """Write a line per module: its path and the first line of its docstring."""
    lines: list[str] = []
    package = ""
    for path in sorted(SOURCE.rglob("*.py"), key=_map_order):
        name = path.relative_to(SOURCE).as_posix()
        folder = str(Path(name).parent)
        if folder != package:
            package = folder
            lines.append("")
        first_line = _first_docstring_line(path)
        if path.name == "__init__.py":
            lines.append(f"**`{folder}/`** {first_line}\n")
        else:
            lines.append(f"- `{path.name}` {first_line}")
    return "\n".join(lines).strip() + "\n"


def _map_order(path: Path) -> tuple[str, bool, str]:
    return str(path.parent), path.name != "__init__.py", path.name


def _first_docstring_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def modules_page() -> str:
    """Write the page that lists the modules."""
    return f"{MODULES_HEAD}\n{module_map()}"


def pages() -> dict[Path, str]:
    """Give every generated page by its path."""
    return {
        ROOT / "docs" / "configuration.md": configuration_page(config_classes()),
        ROOT / "docs" / "spark-options.md": spark_options_page(spark_option_classes()),
        ROOT / "docs" / "compatibility.md": compatibility_page(),
        ROOT / "docs" / "limits.md": limits_page(),
        ROOT / "docs" / "modules.md": modules_page(),
    }


def write_or_check(page: str, path: Path, *, check: bool) -> int:
    """Put the page in its place, or compare it with the one there; give the exit code."""
    if not check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
        return 0
    if path.exists() and path.read_text(encoding="utf-8") == page:
        return 0
    print(f"{path.name} is out of date; run: make docs", file=sys.stderr)
    return 1


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it differs")
    check: bool = parser.parse_args().check
    return max(write_or_check(page, path, check=check) for path, page in pages().items())


if __name__ == "__main__":
    sys.exit(main())
