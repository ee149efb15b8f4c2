"""Writes the tables of docs/performance-tables.md from the results that are kept.

Run it when they have changed: `python -m benchmarks.performance_page`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks import (
    broker_latency,
    broker_pull,
    broker_rounds,
    broker_send,
    broker_start,
    catch_up,
    client_rounds,
    delayed_messages,
    master_death,
    pending_timers,
    promotion,
    replication,
    spark_kafka,
    timer_burst,
    transactions,
)
from benchmarks.rounds import RESULTS

PAGE: Final = Path(__file__).parent.parent / "docs" / "performance-tables.md"
_BLOCK: Final = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_COLUMNS: Final = {
    "broker_send": broker_send.COLUMNS,
    "broker_pull": broker_pull.COLUMNS,
    "broker_latency": broker_latency.COLUMNS,
    "delayed_messages": delayed_messages.COLUMNS,
    "timer_burst": timer_burst.COLUMNS,
    "transactions": transactions.COLUMNS,
    "replication": replication.COLUMNS,
}
_CLIENTS: Final = frozenset({"client_send", "client_consume", "request_reply"})
_PENDING: Final = "pending_timers"
_PAIRS: Final = {
    question.name: question
    for question in (promotion.QUESTION, catch_up.QUESTION, master_death.QUESTION)
}
_SPARK: Final = "spark_kafka"


def table_of(name: str) -> str:
    """The table of one benchmark, with a line that says when and where it was measured."""
    file = RESULTS / f"{name}.json"
    if not file.exists():
        return f"Not measured yet: `python -m benchmarks.{name}`.\n"
    results: dict[str, Any] = msgspec.json.decode(file.read_bytes())
    facts = results["environment"]
    before, after = facts["load_average_before"], facts["load_average_after"]
    peers = "".join(f", RocketMQ {version}" for version in facts.get("rocketmq", ()))
    where = (
        f"{facts['date']}, OrbitMQ {facts['orbitmq']} on {facts['python']}{peers}; "
        f"{facts['cores']} cores, {facts['processor']}, {facts['system']}; load average "
        f"{before[0]} before and {after[0]} after"
    )
    plan = results.get("plan")
    if plan is not None and name == _SPARK:
        where += (
            f"; PySpark {facts['pyspark']}, Kafka {facts['kafka']} with connector "
            f"{facts['kafka_connector']}; {plan['rounds']} rounds after one of warm-up, of "
            f"{plan['rows']:,} rows of 128 B and as many bytes of 1 KiB"
        )
        if "steady_copies" in plan:
            where += f", {plan['steady_copies']} times as many for steady streams"
    elif plan is not None:
        where += (
            f"; {plan['rounds']} rounds of {plan['seconds']:g} s a slice, "
            f"{plan['java_warm_up_seconds']:g} s of warm-up for Java"
        )
    rows = results["summary"]
    columns = _COLUMNS.get(name)
    if columns is not None:
        shown = broker_rounds.table(rows, columns)
    elif name == _SPARK:
        shown = spark_kafka.table(rows)
    elif name in _CLIENTS:
        shown = client_rounds.table(rows)
    elif name == _PENDING:
        shown = pending_timers.table(rows)
    elif name in _PAIRS:
        shown = _PAIRS[name].table(rows)
    else:
        shown = broker_start.table(rows)
    return f"{where}.\n\n{shown}\n"


def with_tables(page: str) -> str:
    """The page with every table regenerated."""
    return _BLOCK.sub(lambda found: f"{found[1]}{table_of(found[2])}{found[3]}", page)


def main() -> None:
    """Write the page."""
    PAGE.write_text(with_tables(PAGE.read_text()))


if __name__ == "__main__":
    main()
