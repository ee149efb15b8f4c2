"""`orbitmq pipeline`: runs what a pipeline file describes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, client_keywords, confirm
from orbitmq.cli.completion import Topic
from orbitmq.cli.output import AsJson, show_rows, time_text
from orbitmq.cli.pipeline_cases import record, try_cases
from orbitmq.cli.pipeline_file import File, newest_messages, read
from orbitmq.cli.pipeline_run import run
from orbitmq.errors import SettingsError

if TYPE_CHECKING:
    from orbitmq.client.aio.admin import Admin
    from orbitmq.model.queues import MessageQueue
    from orbitmq.pipelines.plan import Pipeline


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Run what a pipeline file describes: topics to tables and topics.",
        no_args_is_help=True,
    )
    group.command("new")(new)
    group.command("check")(check)
    group.command("run")(run)
    group.command("status")(status)
    group.command("reset")(forget_progress)
    group.command("record")(record)
    group.command("test")(try_cases)
    app.add_typer(group, name="pipeline")


def new(
    topic: Topic,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The file to write; TOPIC.yaml.")
    ] = None,
    *,
    namesrv: NameServers = None,
) -> None:
    """Write a first pipeline file for a topic, by a look at its newest messages."""
    from orbitmq.pipelines.drafting import SAMPLE_MAX, draft

    administer(namesrv, lambda admin: admin.topics.route(topic), topic=topic)
    file = file or Path(f"{topic}.yaml")
    servers = client_keywords(namesrv)["namesrv"]
    sample = newest_messages(namesrv, topic, count=SAMPLE_MAX)
    text = draft(servers, topic, [message.body for message in sample])
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as error:
        raise SettingsError(f"{file} is not written: {error}", hint="name another file") from error
    typer.echo(f"{file} is written; next: orbitmq pipeline check {file}")


def check(file: File, *, as_json: AsJson = False) -> None:
    """Read a pipeline file, and show what it would run; Spark is not started."""
    pipeline = read(file)
    rows: list[dict[str, object]] = [
        {
            "sink": sink.name,
            "from": sink.reads,
            "to": sink.target,
            "guarantee": sink.guarantee,
        }
        for sink in pipeline.sinks
    ]
    show_rows(rows, as_json=as_json)


def status(file: File, *, as_json: AsJson = False) -> None:
    """Show how far the queries of a pipeline are; it may be running."""
    pipeline = read(file)
    from orbitmq.pipelines.running.state import states

    found = states(pipeline)
    ends = _ends(pipeline) if found else {}
    rows: list[dict[str, object]] = [
        {
            "query": one.name,
            "batch": one.batch,
            "committed": time_text(one.committed_ms),
            "lag": one.lag(ends),
        }
        for one in found
    ]
    show_rows(rows, as_json=as_json, empty=f"{pipeline.name} has not committed anything yet")


def forget_progress(file: File, *, yes: Yes = False) -> None:
    """Let the next run begin anew; what was written stays."""
    pipeline = read(file)
    from orbitmq.pipelines.running.state import reset, states

    queries = ", ".join(one.name for one in states(pipeline))
    if not queries:
        typer.echo(f"{pipeline.name} has not committed anything yet")
        return
    confirm(
        f"forget how far {queries} of pipeline {pipeline.name} are? What they wrote stays, and the "
        "next run writes it again",
        yes=yes,
    )
    reset(pipeline)
    typer.echo(f"{pipeline.name} begins anew at its next run; move its tables of files away first")


def _ends(pipeline: Pipeline) -> dict[MessageQueue, int]:
    """Where the queues of all topics of a pipeline end now."""
    from orbitmq.pipelines.plan import TopicSource

    ends: dict[MessageQueue, int] = {}
    for source in pipeline.sources:
        if isinstance(source, TopicSource):
            ends |= administer(source.namesrv, partial(_ends_of, source.topic))
    return ends


async def _ends_of(topic: str, admin: Admin) -> dict[MessageQueue, int]:
    bounds = await admin.topics.bounds(topic)
    return {queue: one.max_offset for queue, one in bounds.items()}
