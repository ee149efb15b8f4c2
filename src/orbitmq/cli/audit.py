"""`orbitmq audit`: store directories of brokers and replicas, examined by Spark.

Exit codes: 0 nothing is wrong, 1 defects, 2 no defects found, but not everything could be examined.
"""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.output import AsJson, counted, escaped, show_json, show_rows
from orbitmq.errors import OrbitError, SettingsError, StoreError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.pipelines.auditing.audit import AuditOptions
    from orbitmq.pipelines.auditing.message_checks import MessageChecks
    from orbitmq.pipelines.auditing.results import Audit, AuditedStore
    from orbitmq.store.tools.findings import Finding

EXIT_DEFECTS = 1
EXIT_NOT_EXAMINED = 2
# Findings of each kind shown in text; --json has more.
_SHOWN_MAX = 20


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(  # noqa: PLR0913  # the flags of the command
    directories: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]DIR[,REPLICA…]…",
            help="For each broker its store directory (storePathRootDir), and those of its "
            "replicas after a comma; a name if the store does not tell it.",
        ),
    ],
    *,
    duplicates: Annotated[
        bool, typer.Option(help="Look for messages of a topic with the same unique key.")
    ] = True,
    sequence_property: Annotated[
        str | None, typer.Option(help="A property with a sequence number: look for gaps.")
    ] = None,
    sequence_per: Annotated[
        str | None,
        typer.Option(help="A property that tells sequences of a topic apart, as a customer's id."),
    ] = None,
    log_path: Annotated[
        str, typer.Option(help="Folders of the log, if not DIR/commitlog; for one directory.")
    ] = "",
    index_slots: Annotated[
        int | None,
        typer.Option(help="Slots of an index file (maxHashSlotNum), if not a quarter of entries."),
    ] = None,
    delay_levels: Annotated[
        str | None, typer.Option(help="The messageDelayLevel of the brokers, if not the default.")
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(help="The Spark to run on, as spark://host:7077; this machine if not given."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Examine store directories and replicas: read-only, also while brokers run.

    Exit codes: 0 nothing is wrong, 1 defects, 2 no defects, but not everything could be examined.
    """
    from orbitmq.pipelines.auditing.audit import AuditOptions

    options = AuditOptions(
        log_path=log_path,
        delay_levels=delay_levels,
        index_slots=index_slots,
        with_duplicates=duplicates,
        sequence_property=sequence_property,
        sequence_per=sequence_per,
    )
    try:
        found = _found(directories, options, master)
    except OrbitError as error:
        # Not 1, which says that there are defects.
        _complain(f"orbitmq: {error}")
        raise typer.Exit(EXIT_NOT_EXAMINED) from error
    if as_json:
        show_json(_as_json(found))
    else:
        _show(found)
    if found.has_defects:
        raise typer.Exit(EXIT_DEFECTS)
    if not found.is_complete:
        raise typer.Exit(EXIT_NOT_EXAMINED)


def _found(directories: list[str], options: AuditOptions, master: str | None) -> Audit:
    from pyspark.errors import PySparkException

    from orbitmq.pipelines.auditing.audit import audit as run_audit
    from orbitmq.pipelines.auditing.directories import parse_directories
    from orbitmq.pipelines.running.spark_errors import reason_of
    from orbitmq.spark import session

    brokers = parse_directories(directories)
    if options.log_path and sum(len(broker.roots) for broker in brokers) > 1:
        raise SettingsError(
            "--log-path is given for several directories",
            hint="audit stores with separate logs one at a time",
        )
    if options.sequence_per is not None and options.sequence_property is None:
        raise SettingsError(
            "--sequence-per is given without --sequence-property", hint="name the property"
        )
    with ExitStack() as opened:

        def started() -> SparkSession:
            spark = session("audit", settings={"spark.master": master} if master else None)
            opened.callback(spark.stop)
            return spark

        try:
            return run_audit(brokers, options, started)
        except PySparkException as error:
            raise StoreError(
                f"Spark could not run the audit: {reason_of(error)}",
                hint="every machine of the cluster needs the directories and OrbitMQ",
            ) from error


def _as_json(found: Audit) -> dict[str, object]:
    return {
        "healthy": not found.has_defects and found.is_complete,
        "stores": [
            {
                "broker": store.plan.broker,
                "directory": store.root,
                "replicaOf": store.plan.replica_of or None,
                "start": store.plan.start,
                "end": store.plan.end,
                "records": store.records,
                "recordBytes": store.record_bytes,
                "queues": store.plan.queues,
                "entries": store.entries,
                "keys": store.keys,
                "comparedBytes": store.compared_bytes,
                "counts": {kind.value: count for kind, count in store.counts.items()},
                "findings": [_plain(one) for one in store.findings],
                "notes": store.notes,
                "errors": store.errors,
                "advice": store.advice,
            }
            for store in found.stores
        ],
        "messages": _plain(found.messages),
    }


def _plain(content: Finding | MessageChecks) -> dict[str, object]:
    return {
        name: value.value if isinstance(value, Enum) else value
        for name, value in dataclasses.asdict(content).items()
    }


# --- showing --------------------------------------------------------------------------------------


def _show(found: Audit) -> None:
    show_rows([_row(store) for store in found.stores], as_json=False)
    for store in found.stores:
        _show_store(store)
    _show_messages(found.messages)
    if not found.has_defects and found.is_complete:
        typer.secho("nothing is wrong", fg=typer.colors.GREEN)


def _row(store: AuditedStore) -> dict[str, object]:
    return {
        "broker": store.plan.broker,
        "directory": store.root,
        "log": f"{store.plan.start} to {store.plan.end}",
        "records": store.records,
        "entries": store.entries,
        "keys": store.keys,
        "compared": f"{store.compared_bytes} bytes" if store.plan.replica_of else "",
        "result": _result(store),
    }


def _result(store: AuditedStore) -> str:
    if store.counts:
        kinds = sorted(store.counts.items(), key=lambda item: item[0].value)
        return ", ".join(f"{count} {kind.value}" for kind, count in kinds)
    return "not examined" if store.errors else "fine"


def _show_store(store: AuditedStore) -> None:
    if not (store.findings or store.errors or store.notes):
        return
    typer.echo(f"\n{store.root}")
    shown: dict[str, int] = {}
    for one in store.findings:
        kind = one.kind.value
        shown[kind] = shown.get(kind, 0) + 1
        if shown[kind] <= _SHOWN_MAX:
            typer.secho(escaped(f"  {kind}: {_where(one)}: {one.text}"), fg=typer.colors.RED)
    for kind, count in shown.items():
        if count > _SHOWN_MAX:
            typer.echo(f"  {kind}: and {count - _SHOWN_MAX} more places; --json has them")
    for error in store.errors:
        _complain(f"  not examined: {error}")
    for note in store.notes:
        typer.echo(f"  note: {note}")
    for line in store.advice:
        typer.echo(f"  what to do: {line}")


def _where(finding: Finding) -> str:
    """Where something is: file, offset in the log, queue and queue offsets."""
    parts: list[str] = []
    if finding.topic:
        numbers = str(finding.first_number)
        if finding.last_number != finding.first_number:
            numbers += f" to {finding.last_number}"
        parts.append(f"topic {finding.topic} queue {finding.queue_id} offset {numbers}")
    if finding.position >= 0:
        parts.append(f"byte {finding.position} of {finding.file}")
    elif finding.file:
        parts.append(finding.file)
    if finding.offset >= 0:
        parts.append(f"log offset {finding.offset}")
    return ", ".join(parts)


def _show_messages(found: MessageChecks) -> None:
    if found.repeated_count:
        typer.echo(
            f"\nfor information: {counted(found.repeated_count, 'unique key')} more than once in "
            f"a topic, {counted(found.extra_messages, 'message')} more than one of each"
        )
        show_rows([dataclasses.asdict(one) for one in found.repeated[:_SHOWN_MAX]], as_json=False)
    if found.gap_count:
        typer.echo(
            f"\nfor information: {counted(found.gap_count, 'gap')} in sequences, "
            f"{counted(found.missing_numbers, 'number')} missing"
        )
        show_rows([dataclasses.asdict(one) for one in found.gaps[:_SHOWN_MAX]], as_json=False)
    if found.not_numbers:
        typer.echo(
            f"\nfor information: {counted(found.not_numbers, 'message')} with a sequence property "
            "that is no whole number"
        )


def _complain(text: str) -> None:
    typer.secho(text, fg=typer.colors.RED, err=True)
