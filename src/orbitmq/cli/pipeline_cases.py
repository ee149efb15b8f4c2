"""`orbitmq pipeline record | test`: tests of a pipeline, from recorded messages."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.output import AsJson, counted, show_json, show_rows
from orbitmq.cli.pipeline_file import File, newest_messages, read
from orbitmq.errors import PipelineError, SettingsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.pipelines.cases.case_files import Case, Row
    from orbitmq.pipelines.cases.comparison import Difference
    from orbitmq.pipelines.cases.trial import Outcome
    from orbitmq.pipelines.plan import Pipeline

_SHOWN_MAX = 10
_COUNT_MAX = 10_000


def record(
    file: File,
    case: Annotated[str, typer.Argument(metavar="CASE", help="A name for the case.")],
    *,
    count: Annotated[
        int, typer.Option(min=1, max=_COUNT_MAX, help="How many messages of each topic.")
    ] = 20,
) -> None:
    """Record the newest messages of a pipeline's topics, as a case to test it with."""
    pipeline = read(file)
    from orbitmq.pipelines.cases.case_files import (
        RecordedMessage,
        case_names,
        check_name,
        write_messages,
    )
    from orbitmq.pipelines.plan import TopicSource

    check_name(case)
    if case in case_names(pipeline):
        raise SettingsError(f"there is a case {case} already", hint="delete it, or name another")
    for source in pipeline.sources:
        if isinstance(source, TopicSource):
            found = newest_messages(source.namesrv, source.topic, count=count)
            messages = [
                RecordedMessage(
                    body=one.body, keys=one.keys, tags=one.tags, properties=own.properties
                )
                for one in sorted(found, key=lambda one: one.store_ms)
                for own in [one.as_message()]
            ]
            written = write_messages(pipeline, case, source.name, messages)
            typer.echo(f"{written}: {counted(len(messages), 'message')} of {source.topic}")
    typer.echo(f"next: orbitmq pipeline test {file} '{case}' --accept")


def try_cases(
    file: File,
    cases: Annotated[
        list[str] | None, typer.Argument(metavar="[CASE]...", help="The cases; all of them.")
    ] = None,
    *,
    accept: Annotated[
        bool, typer.Option("--accept", help="Take what comes out as what is expected from now on.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline on recorded messages, and compare its rows with those expected."""
    pipeline = read(file)
    from orbitmq.pipelines.cases.case_files import case_names, folder_of, read_case
    from orbitmq.pipelines.suggestions import suggestion

    known = case_names(pipeline)
    for name in cases or ():
        if name not in known:
            raise SettingsError(f"there is no case {name}", hint=suggestion(name, known))
    if not known:
        raise SettingsError(
            f"{folder_of(pipeline)} has no cases",
            hint=f"make one of real messages: orbitmq pipeline record {file} first",
        )
    # All are read before Spark starts: mistakes are named at once.
    found = [read_case(pipeline, name) for name in dict.fromkeys(cases or known)]
    results = [result for one in _run(pipeline, found, is_accepted=accept) for result in one]
    if as_json:
        show_json(results)
    else:
        _show(results)
    if any(result["result"] in ("differs", "failed") for result in results):
        raise typer.Exit(1)


def _run(
    pipeline: Pipeline, cases: Sequence[Case], *, is_accepted: bool
) -> Iterable[list[dict[str, object]]]:
    from orbitmq.pipelines.cases.case_files import write_expected
    from orbitmq.spark import session

    spark = session(f"test {pipeline.name}")
    try:
        for case in cases:
            try:
                outcome = _outcome(pipeline, case, spark)
            except PipelineError as error:
                yield [{"case": case.name, "rows_of": error.query, "rows": 0,
                        "result": "failed", "error": str(error)}]  # fmt: skip
                continue
            if is_accepted:
                write_expected(pipeline, case.name, outcome.rows, outcome.rejected)
            yield list(_results(case, outcome, is_accepted=is_accepted))
    finally:
        spark.stop()


def _outcome(pipeline: Pipeline, case: Case, spark: SparkSession) -> Outcome:
    from orbitmq.embedded import Cluster
    from orbitmq.pipelines.cases.trial import name_servers_of, run_case

    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="orbitmq-case-"))
        clusters = {
            one: opened.enter_context(Cluster(in_memory=True)).namesrv
            for one in name_servers_of(pipeline)
        }
        return run_case(pipeline, case, spark=spark, name_servers=clusters, folder=Path(folder))


def _results(case: Case, outcome: Outcome, *, is_accepted: bool) -> Iterable[dict[str, object]]:
    from orbitmq.pipelines.cases.comparison import difference

    compared: list[tuple[str, Sequence[Row] | None, Sequence[Row]]] = [
        (sink, case.rows.get(sink), rows) for sink, rows in outcome.rows.items()
    ]
    # Where nothing is said of them, no row shall be rejected.
    compared += [
        (f"quarantine of {source}", case.rejected.get(source, ()), rows)
        for source, rows in outcome.rejected.items()
    ]
    for name, expected, rows in compared:
        result: dict[str, object] = {"case": case.name, "rows_of": name, "rows": len(rows)}
        if is_accepted:
            yield result | {"result": "accepted"}
        elif expected is None:
            yield result | {"result": "not compared"}
        elif found := difference(name, expected, rows):
            yield result | {"result": "differs", **_as_fields(found)}
        else:
            yield result | {"result": "ok"}


def _as_fields(found: Difference) -> dict[str, object]:
    return {"missing": list(found.missing), "unexpected": list(found.unexpected)}


def _show(results: Sequence[dict[str, object]]) -> None:
    columns = ("case", "rows_of", "rows", "result")
    show_rows([{name: one[name] for name in columns} for one in results], as_json=False)
    for one in results:
        if "error" in one:
            typer.echo(f"{one['case']}: {one['error']}")
        for kind in ("missing", "unexpected"):
            rows = one.get(kind, [])
            assert isinstance(rows, list)
            for row in rows[:_SHOWN_MAX]:
                typer.echo(f"{one['case']}: {one['rows_of']}: {kind} {row}")
            if len(rows) > _SHOWN_MAX:
                typer.echo(f"{one['case']}: {one['rows_of']}: {len(rows)} rows are {kind}")
