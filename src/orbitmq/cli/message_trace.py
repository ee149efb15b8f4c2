"""`orbitmq message trace …`: the journey of a message, as clients traced it."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.administering import NameServers, administer
from orbitmq.cli.moments import parse_moment
from orbitmq.cli.output import AsJson, escaped, show_json, show_rows, time_text
from orbitmq.client.aio.admin import Admin
from orbitmq.client.aio.admin.traces import TRACE_MESSAGES_MAX, TraceSearch
from orbitmq.client.core.tracing.journeys import Journey, Step
from orbitmq.clock import SystemClock
from orbitmq.model.names import TRACE_TOPIC


def add_to(group: typer.Typer) -> None:
    """Add the command."""
    group.command("trace")(trace)


def trace(
    id_or_key: Annotated[
        str, typer.Argument(metavar="ID_OR_KEY", help="The id of a message, or one of its keys.")
    ],
    *,
    trace_topic: Annotated[
        str, typer.Option("--trace-topic", help="The topic that clients write traces to.")
    ] = TRACE_TOPIC,
    begin: Annotated[
        str, typer.Option("--from", help="A time: 2026-01-31T12:30; or 15m, 2h, 3d ago.")
    ] = "",
    end: Annotated[str, typer.Option("--to", help="A time, like --from.")] = "",
    count: Annotated[
        int, typer.Option("-c", "--count", min=1, help="Read at most this many trace messages.")
    ] = TRACE_MESSAGES_MAX,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Show the journey of a message: sent, consumed, retried, as clients with trace on report."""
    now_ms = SystemClock().now_ms()
    begin_ms = parse_moment(begin, now_ms=now_ms) if begin else 0
    end_ms = parse_moment(end, now_ms=now_ms) if end else 2**62

    async def ask(admin: Admin) -> TraceSearch:
        return await admin.traces.of(
            id_or_key,
            trace_topic=trace_topic,
            count_max=count,
            begin_ms=begin_ms,
            end_ms=end_ms,
        )

    found = administer(namesrv, ask)
    if as_json:
        show_json(_as_object(found))
    else:
        for number, journey in enumerate(found.journeys):
            if number:
                typer.echo()
            _show_journey(journey)
    _warn(found)


def _show_journey(journey: Journey) -> None:
    facts = {
        "topic": journey.topic,
        "tags": journey.tags,
        "keys": " ".join(journey.keys),
        "bytes": "" if journey.body_bytes is None else str(journey.body_bytes),
    }
    shown = "  ".join(f"{name}={escaped(value)}" for name, value in facts.items() if value)
    typer.secho(f"message {escaped(journey.message_id)}", bold=True, nl=False)
    typer.echo(f"  {shown}" if shown else "")
    show_rows([_row(step) for step in journey.steps], as_json=False)


def _row(step: Step) -> dict[str, object]:
    return {
        "time": time_text(step.time_ms),
        "step": step.kind.value,
        "group": escaped(step.group),
        "client": escaped(step.client),
        "broker": escaped(step.broker),
        "cost_ms": "" if step.cost_ms is None else step.cost_ms,
        "retries": "" if step.retries is None else step.retries,
        "result": step.result,
    }


def _as_object(found: TraceSearch) -> dict[str, object]:
    return {
        "messages": [
            {
                "message_id": journey.message_id,
                "offset_message_id": journey.offset_message_id,
                "topic": journey.topic,
                "tags": journey.tags,
                "keys": list(journey.keys),
                "body_bytes": journey.body_bytes,
                "steps": [
                    {
                        "time": time_text(step.time_ms),
                        "time_ms": step.time_ms,
                        "step": step.kind.value,
                        "group": step.group,
                        "client": step.client,
                        "broker": step.broker,
                        "cost_ms": step.cost_ms,
                        "retries": step.retries,
                        "result": step.result,
                    }
                    for step in journey.steps
                ],
            }
            for journey in found.journeys
        ],
        "malformed_count": found.malformed_count,
        "malformed": [
            {
                "trace_message_id": each.trace_message_id,
                "reason": each.reason,
                "text": each.text,
            }
            for each in found.malformed
        ],
        "is_cut": found.is_cut,
    }


def _warn(found: TraceSearch) -> None:
    """Say on stderr what is missing from the journeys."""
    if found.malformed:
        first = found.malformed[0]
        typer.secho(
            f"warning: {found.malformed_count} parts of the traces are malformed and were left "
            f"out; the first, in trace message {first.trace_message_id}: {escaped(first.reason)}: "
            f"{escaped(first.text)}",
            fg=typer.colors.YELLOW,
            err=True,
        )
    if found.is_cut:
        typer.secho(
            "warning: there may be more; give a higher --count, or a span with --from and --to",
            fg=typer.colors.YELLOW,
            err=True,
        )
