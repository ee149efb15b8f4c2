"""`orbitmq cut resend`: send messages of a cut tail again, slowly, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from orbitmq.cli.administering import (
    NameServers,
    Yes,
    administer,
    client_keywords,
    confirm,
    require_target,
)
from orbitmq.cli.cut_tails.sent_messages import SentMessages
from orbitmq.cli.cut_tails.survey import Survey, survey
from orbitmq.cli.cut_tails.tail_messages import Tail
from orbitmq.cli.message_output import print_sent
from orbitmq.cli.output import AsJson, counted, escaped, show_json, show_rows
from orbitmq.cli.pace import RATE, Pace, Rate, check_rate
from orbitmq.client.aio import Producer
from orbitmq.clock import SystemClock
from orbitmq.errors import (
    CommandError,
    MessageError,
    OrbitError,
    RemoteError,
    RouteNotFoundError,
    SendRefusedError,
    SettingsError,
)
from orbitmq.model import property_names
from orbitmq.protocol.codes import ResponseCode
from orbitmq.store.opening.cut_intent import cuts, saved_cut

if TYPE_CHECKING:
    from orbitmq.cli.cut_tails.tail_messages import TailMessage
    from orbitmq.client.aio.admin import Admin
    from orbitmq.model.messages import Message
    from orbitmq.model.queues import MessageQueue
    from orbitmq.store.opening.cut_intent import Cut

_NOTHING_FOUND: Final = 4
_LOG_FOLDER: Final = "commitlog"
# A store whose log is elsewhere (storePathCommitLog) has this.
_CHECKPOINT: Final = "checkpoint"


@dataclass(slots=True)
class _Done:
    """What one run has done."""

    sent: int = 0
    # The cluster had them already: their producer or an earlier run sent them.
    known: int = 0
    # The cluster would never take them.
    refused: int = 0


def resend(  # a parameter a flag
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="The store of the former master, or a tail's folder."),
    ],
    tail: Annotated[
        str, typer.Argument(metavar="[TAIL]", help="Which tail; needed if there are several.")
    ] = "",
    *,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", help="Only of this topic; may be repeated.")
    ] = None,
    rate: Rate = RATE,
    preview: Annotated[bool, typer.Option("--preview", help="Show what would be sent.")] = False,
    yes: Yes = False,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Send messages of a cut tail to their topics, each once; a second run sends only the rest."""
    check_rate(rate)
    if as_json and not (yes or preview):
        raise CommandError(
            "--json asks no questions", hint="give --yes, after a look with --preview"
        )
    cut = _find(folder, tail)
    messages = Tail(cut)
    if preview:
        found = _look(messages, SentMessages.read(cut), topics or ())
        _show(found, as_json=as_json)
        return
    with SentMessages.open(cut) as sent:
        found = _look(messages, sent, topics or ())
        if not found.wanted:
            _show_nothing(found, cut)
            return
        if not (yes or as_json):
            _show(found, as_json=False)
        administer(namesrv, lambda admin: _check_targets(admin, found))
        confirm(
            f"send {counted(found.wanted, 'message')} of {cut.saved_path.name}, {rate:g} a second "
            "at most?",
            yes=yes,
        )
        done = _Done()
        with _reporting(done):
            administer(
                namesrv,
                lambda admin: _send(
                    admin,
                    messages,
                    sent,
                    found,
                    done,
                    pace=Pace(rate),
                    namesrv=namesrv,
                    as_json=as_json,
                ),
            )


def check_store(folder: Path) -> None:
    """Raise if the folder holds no store: a mistyped path must not look as if nothing was cut."""
    if (folder / _LOG_FOLDER).is_dir() or (folder / _CHECKPOINT).exists() or cuts(folder):
        return
    stores = sorted(str(path.parent) for path in folder.glob(f"*/{_LOG_FOLDER}"))
    what = "holds no store" if folder.is_dir() else "is no folder"
    raise SettingsError(
        f"{folder} {what}",
        hint=f"it is a folder of stores; give one of them: {', '.join(stores)}"
        if stores
        else "give the storePathRootDir of the broker that was the master",
    )


def _find(folder: Path, tail: str) -> Cut:
    """The tail that is meant; raises with those that there are."""
    if not tail and (cut := saved_cut(folder)) is not None:
        return cut
    check_store(folder)
    found = {cut.saved_path.name: cut for cut in cuts(folder)}
    if not found:
        raise SettingsError(
            f"nothing was cut from the log in {folder}",
            hint="give the store directory (storePathRootDir) of the broker that was the master",
        )
    if tail:
        if tail not in found:
            raise SettingsError(f"there is no tail {tail!r}", hint=f"tails: {', '.join(found)}")
        return found[tail]
    if len(found) > 1:
        raise SettingsError(
            f"{len(found)} tails were cut from the log in {folder}",
            hint=f"name one: {', '.join(found)}",
        )
    return next(iter(found.values()))


def _look(tail: Tail, sent: SentMessages, topics: Sequence[str]) -> Survey:
    found = survey(tail, sent, topics)
    if absent := [one for one in topics if one not in found.topics]:
        there = ", ".join(sorted(survey(tail, sent).topics)) or "none"
        raise SettingsError(
            f"the tail has no message of topic {absent[0]!r} that can be sent",
            hint=f"topics: {there}",
        )
    return found


async def _check_targets(admin: Admin, found: Survey) -> None:
    for topic, count in found.topics.items():
        if count.messages:
            await require_target(admin, topic)


async def _send(
    admin: Admin,
    tail: Tail,
    sent: SentMessages,
    found: Survey,
    done: _Done,
    *,
    pace: Pace,
    namesrv: str | None,
    as_json: bool,
) -> None:
    clock = SystemClock()
    name = tail.cut.saved_path.name
    async with Producer("orbitmq-cli", **client_keywords(namesrv)) as producer:
        for message in tail:
            is_wanted = message.left_out is None and message.topic in found.topics
            if not is_wanted or message.offset in sent.offsets:
                continue
            await pace.keep()
            unique_id = message.unique_id
            if unique_id and await _is_in_cluster(admin, message):
                sent.end(message.offset, unique_id)
                done.known += 1
                continue
            sent.begin(message.offset)
            try:
                # What was in one queue stays in one, and so in order.
                result = await producer.send(
                    message.copy(name, now_ms=clock.now_ms()),
                    selector=_queue_of,
                    argument=message.queue_id,
                )
            except (MessageError, SendRefusedError) as error:
                if not _is_about_message(error):
                    raise
                # The others behind it are worth sending.
                done.refused += 1
                named = f"{message.topic} {unique_id or message.offset}"
                typer.secho(f"not sent: {escaped(f'{named}: {error}')}", err=True)
                continue
            sent.end(message.offset, result.message_id)
            done.sent += 1
            print_sent(result, as_json=as_json)
    if done.refused:
        raise MessageError(
            f"{counted(done.refused, 'message')} could not be sent",
            hint="the reasons are above; the tail keeps them: it is a store that can be read",
        )


async def _is_in_cluster(admin: Admin, message: TailMessage) -> bool:
    """Whether the cluster has a message, delivered or as one that is delayed yet."""
    if await admin.messages.by_unique_id(message.topic, message.unique_id):
        return True
    if not message.is_delayed:
        return False
    try:
        waiting = await admin.messages.by_unique_id(message.stored.topic, message.unique_id)
    except RouteNotFoundError:
        # No broker delays messages like this.
        return False
    return any(
        one.properties.get(property_names.REAL_TOPIC) == message.topic
        and property_names.TIMER_CANCELS not in one.properties
        for one in waiting
    )


def _is_about_message(error: MessageError | SendRefusedError) -> bool:
    """Whether a message was refused for what it is, as its size."""
    if isinstance(error, MessageError):
        return True
    cause = error.__cause__
    return isinstance(cause, RemoteError) and cause.code == ResponseCode.MESSAGE_ILLEGAL


def _queue_of(queues: Sequence[MessageQueue], _: Message, queue_id: int) -> MessageQueue:
    return queues[queue_id % len(queues)]


# --- showing ------------------------------------------------------------------------------------


def _show(found: Survey, *, as_json: bool) -> None:
    if as_json:
        left_out = {one.name.lower(): count for one, count in found.left_out.items()}
        show_json({"topics": found.rows(), "left_out": left_out})
        return
    show_rows(found.rows(), as_json=False, empty="the tail has no message that can be sent")
    for reason, count in found.left_out.most_common():
        typer.echo(f"left out: {count} {escaped(reason)}")


def _show_nothing(found: Survey, cut: Cut) -> None:
    for reason, count in found.left_out.most_common():
        typer.secho(f"left out: {count} {escaped(reason)}", err=True)
    if not found.sent:
        typer.secho(f"{cut.saved_path.name} has no message that can be sent", err=True)
        raise typer.Exit(_NOTHING_FOUND)
    # What an earlier run finished is done, as the caller wants it.
    typer.secho(
        f"nothing is left to send; {counted(found.sent, 'message')} were sent before", err=True
    )


@contextmanager
def _reporting(done: _Done) -> Iterator[None]:
    """Say what was sent and what not, also when the command ends early."""
    try:
        yield
    except (OrbitError, KeyboardInterrupt):
        typer.secho(f"stopped: {_said(done)}; the same command sends the rest", err=True)
        raise
    typer.secho(_said(done), err=True)


def _said(done: _Done) -> str:
    text = f"{counted(done.sent, 'message')} sent"
    if done.known:
        text += f"; {done.known} were in the cluster already"
    return f"{text}; {done.refused} were refused" if done.refused else text
