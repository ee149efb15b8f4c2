"""`orbitmq broker promote`: makes a slave the master of its group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm
from orbitmq.cli.output import AsJson, counted, escaped, show_json, show_rows, time_text
from orbitmq.client.aio.admin.promotion import LostRange, Member, Promoted, PromotionPlan
from orbitmq.client.aio.admin.undone_batches import UndoneBatches
from orbitmq.errors import CommandError, PromotionError

_TOPICS_SHOWN: Final = 10
_QUERIES_SHOWN: Final = 10


class MasterRole(StrEnum):
    """What a master waits for before it acknowledges."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"


def promote(
    broker: Annotated[
        str, typer.Argument(metavar="BROKER", help="The name of the group, or a slave's address.")
    ],
    *,
    slave: Annotated[
        str | None,
        typer.Option(
            "--slave",
            help="Its address or brokerId.",
            show_default="the one with the longest log",
        ),
    ] = None,
    role: Annotated[
        MasterRole | None,
        typer.Option("--role", help="brokerRole of the new master.", show_default="the last one's"),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if the master answers, or another slave has more."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be lost.")
    ] = False,
    yes: Yes = False,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Make a slave the master of its group, and show first what would be lost.

    The broker starts again in its new role, in the same process, and has it after restarts, too.
    The old master becomes its slave when it returns.
    """
    plan = administer(
        namesrv, lambda admin: admin.promotion.plan(broker, slave=slave, role=role or "")
    )
    if not as_json:
        _show(plan)
    if dry_run:
        if as_json:
            show_json(_as_object(plan, None))
        raise typer.Exit(1 if plan.obstacles else 0)
    if plan.obstacles and not force and not as_json:
        raise PromotionError(
            f"{plan.slave.address} is not promoted",
            hint="look at each obstacle above; --force promotes it all the same",
        )
    if not plan.obstacles or force:
        if as_json and not yes:
            raise CommandError(
                "--json asks no questions", hint="give --yes, after a look with --dry-run"
            )
        confirm(f"make {plan.slave.address} the master of {plan.broker_name}?", yes=yes)
    done = administer(namesrv, lambda admin: admin.promotion.promote(plan, force=force))
    if as_json:
        show_json(_as_object(plan, done))
        return
    typer.echo(
        f"{done.address} is the master of {plan.broker_name} since epoch {done.epoch}; it kept its "
        f"log up to {done.log_end}"
    )
    for name_server in done.unaware:
        typer.secho(
            f"warning: the name server {name_server} does not name it yet; it learns of it within "
            "30 s once it answers",
            fg=typer.colors.YELLOW,
        )


# --- showing ------------------------------------------------------------------------------------


def _show(plan: PromotionPlan) -> None:
    slave = plan.slave
    typer.echo(
        f"{plan.broker_name}: {slave.address} becomes {plan.role} at epoch {plan.epoch}; its log "
        f"ends at {slave.log_end}"
    )
    if plan.others:
        show_rows([_as_row(one) for one in plan.others], as_json=False)
    for text in _losses(plan):
        typer.echo(escaped(text))
    for text in plan.obstacles:
        typer.secho(f"obstacle: {escaped(text)}", fg=typer.colors.YELLOW)


def _losses(plan: PromotionPlan) -> Iterator[str]:
    """What would be lost, in words: where, how much, and at which durability."""
    for one in plan.lost:
        yield f"lost: {counted(one.bytes, 'byte')} from {one.start} to {one.end}, {_holder(one)}"
    counts = Counter[str]()
    for each in plan.lost_messages:
        counts[each.topic] += each.end - each.kept
    for topic, count in counts.most_common(_TOPICS_SHOWN):
        yield f"lost: {counted(count, 'message')} of {topic}"
    if len(counts) > _TOPICS_SHOWN:
        yield f"lost: messages of {len(counts) - _TOPICS_SHOWN} more topics; --json lists all"
    if plan.memory_topics:
        names = ", ".join(plan.memory_topics[:_TOPICS_SHOWN])
        more = len(plan.memory_topics) - _TOPICS_SHOWN
        yield f"lost: all messages in memory, of {names}{f' and {more} more' if more > 0 else ''}"
    for undone in plan.undone[:_QUERIES_SHOWN]:
        yield f"undone: {_batches(undone)}, as {undone.known_by} knows"
    if len(plan.undone) > _QUERIES_SHOWN:
        yield f"undone: batches of {len(plan.undone) - _QUERIES_SHOWN} more queries; --json lists all"
    yield _durability(plan)
    if plan.is_drained:
        yield (
            f"drained: {plan.broker_name} takes no messages after this either, until: orbitmq broker "
            f"drain {plan.broker_name} --undo"
        )


def _batches(undone: UndoneBatches) -> str:
    first, last = undone.kept + 1, undone.last
    batches = f"batch {last}" if first == last else f"batches {first} to {last}"
    topic = f", into {undone.target}" if undone.target else ""
    return f"exactly-once {batches} of query {undone.query}{topic}"


def _holder(lost: LostRange) -> str:
    if lost.is_up:
        return f"which {lost.holder} has"
    return f"which {lost.holder} had when it was heard last, {time_text(int(lost.heard_ms))}"


def _durability(plan: PromotionPlan) -> str:
    if not plan.is_known:
        return (
            "what the last master had is not known: this slave has not heard from it since it "
            "started. All that it acknowledged without this slave is lost"
        )
    if plan.slaves_awaited and (plan.obstacles or plan.lost):
        return (
            f"lost: whatever was stored beyond {plan.slave.log_end}; because of the obstacles below "
            "that may include messages acknowledged as SEND_OK"
        )
    if plan.slaves_awaited:
        return (
            f"kept: what was acknowledged as SEND_OK, since the master waited for "
            f"{counted(plan.slaves_awaited, 'slave')}. What it stored beyond {plan.slave.log_end} "
            "with FLUSH_SLAVE_TIMEOUT or SLAVE_NOT_AVAILABLE is lost"
        )
    return (
        "the master waited for no slave: whatever it acknowledged beyond "
        f"{plan.slave.log_end} is lost"
    )


def _as_row(member: Member) -> dict[str, object]:
    standing = member.standing
    return {
        "id": member.broker_id,
        "address": member.address,
        "role": standing.role if standing is not None else None,
        "epoch": standing.epoch if standing is not None else None,
        "log_end": standing.log_end if standing is not None else None,
        "state": member.problem or "up",
    }


def _as_object(plan: PromotionPlan, done: Promoted | None) -> dict[str, object]:
    return {
        "broker": plan.broker_name,
        "slave": plan.slave.address,
        "role": plan.role,
        "epoch": plan.epoch,
        "log_end": done.log_end if done is not None else plan.slave.log_end,
        "promoted": done is not None,
        "others": [_as_row(one) for one in plan.others],
        "slaves_awaited": plan.slaves_awaited,
        "is_known": plan.is_known,
        "lost": [
            {
                "holder": one.holder,
                "is_up": one.is_up,
                "start": one.start,
                "end": one.end,
                "heard": time_text(int(one.heard_ms)) or None,
            }
            for one in plan.lost
        ],
        "lost_messages": [
            {"topic": each.topic, "queue": each.queue_id, "kept": each.kept, "end": each.end}
            for each in plan.lost_messages
        ],
        "memory_topics": plan.memory_topics,
        "kept": plan.kept,
        "is_drained": plan.is_drained,
        "undone": [
            {
                "query": one.query,
                "kept_batch": one.kept,
                "last_batch": one.last,
                "known_by": one.known_by,
                "topic": one.target or None,
            }
            for one in plan.undone
        ],
        "obstacles": list(plan.obstacles),
        "unaware_name_servers": list(done.unaware) if done is not None else [],
    }
