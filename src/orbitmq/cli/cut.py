"""`orbitmq cut`: what was cut from the log of a former master, sent again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.cut_tails.resending import check_store, resend
from orbitmq.cli.cut_tails.sent_messages import SentMessages
from orbitmq.cli.cut_tails.survey import survey
from orbitmq.cli.cut_tails.tail_messages import Tail
from orbitmq.cli.output import AsJson, show_rows, time_text
from orbitmq.store.opening.cut_intent import cuts


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="List what was cut from the log of a former master, and send it again.",
        no_args_is_help=True,
    )
    group.command("list")(list_tails)
    group.command("resend")(resend)
    app.add_typer(group, name="cut")


def list_tails(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The store of the former master.")],
    *,
    as_json: AsJson = False,
) -> None:
    """List the tails that were cut from the log of a store; reads all of them."""
    check_store(folder)
    rows: list[dict[str, object]] = []
    for cut in cuts(folder):
        found = survey(Tail(cut), SentMessages.read(cut))
        rows.append(
            {
                "tail": cut.saved_path.name,
                "epoch": cut.epoch,
                "begin": cut.at,
                "end": cut.end,
                "messages": found.wanted + found.sent,
                "sent": found.sent,
                "left_out": sum(found.left_out.values()),
                "first_stored": time_text(found.first_ms),
                "last_stored": time_text(found.last_ms),
            }
        )
    show_rows(rows, as_json=as_json, empty=f"nothing was cut from the log in {folder}")
