"""`orbitmq broker drain`: takes a broker out of service, and fails no send."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import typer

from orbitmq.cli.administering import NameServers, Yes, administer, confirm
from orbitmq.cli.output import AsJson, counted, escaped, show_json
from orbitmq.client.aio.admin import Admin
from orbitmq.client.aio.admin.draining import Backlog, BrokerToDrain, Draining, GroupLag, Unread
from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import CommandError

# Producers look up their routes every 30 s, unless they are told otherwise.
_QUIET_S: Final = 40
_QUIET_TIMES_MAX: Final = 3
_TIMEOUT_S: Final = 3600
_MEMBER_WAIT_S: Final = 30
_ROUND_MS: Final = 1000
_SHOWN_EVERY_MS: Final = 5000
# The speed of consumers is that of the last rounds.
_SPEED_ROUNDS: Final = 30
_NAMES_SHOWN: Final = 10
_TAKES_AGAIN: Final = (
    "it takes messages again: somebody undid the drain, or it restarted without a config file (-c)"
)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """What to wait for, and how long."""

    timeout_ms: float
    quiet_ms: float
    member_wait_ms: float
    ignored_groups: frozenset[str] = frozenset()
    # Messages that are not visible yet may stay.
    leaves_pending: bool = False


@dataclass(slots=True, kw_only=True)
class Outcome:
    """How draining ended."""

    broker: BrokerToDrain
    may_stop: bool
    # What is in the way; empty if it may stop.
    reasons: list[str]
    backlog: Backlog
    unread: Unread
    eta_s: int | None
    waited_s: int
    # Groups that were not waited for, and lag.
    ignored_groups: tuple[str, ...] = ()
    # Whether it still refuses sends.
    refuses_sends: bool = True


def drain(  # noqa: PLR0913  # a parameter a flag
    broker: Annotated[
        str, typer.Argument(metavar="BROKER", help="A master: its name, or its address.")
    ],
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Let producers send to it again.")] = False,
    ignored_groups: Annotated[
        list[str] | None,
        typer.Option("--ignore-group", help="Do not wait for this group; can be repeated."),
    ] = None,
    leave_pending: Annotated[
        bool,
        typer.Option(
            "--leave-pending",
            help="Do not wait for delayed, timed and half messages: they stay on the broker.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Even if sends to some topics fail then."),
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0, help="Give up after this many seconds.")
    ] = _TIMEOUT_S,
    quiet_s: Annotated[
        float,
        typer.Option(
            "--quiet",
            min=0,
            help="Producers have gone when nothing arrived for this many seconds: more than "
            "their interval of looking up routes.",
        ),
    ] = _QUIET_S,
    member_wait_s: Annotated[
        float,
        typer.Option(
            "--member-wait", min=0, help="Wait this long for a member of a group that lags."
        ),
    ] = _MEMBER_WAIT_S,
    yes: Yes = False,
    namesrv: NameServers = None,
    as_json: AsJson = False,
) -> None:
    """Stop sends to a broker, wait until its messages are consumed, say when it may be stopped.

    Exits with 0 if it may be switched off, with 1 if not yet. It takes no messages until --undo, so
    run it again to wait on. A broker that has a config file (-c) remembers it across restarts.
    """
    if undo:
        done = administer(namesrv, lambda admin: _undo(admin, broker))
        if as_json:
            show_json({"broker": done.name, "address": done.address, "drained": False})
        else:
            typer.echo(f"producers may send to {done.name} again")
        return
    patience = Patience(
        timeout_ms=timeout_s * 1000,
        quiet_ms=quiet_s * 1000,
        member_wait_ms=member_wait_s * 1000,
        ignored_groups=frozenset(ignored_groups or ()),
        leaves_pending=leave_pending,
    )
    found = administer(namesrv, lambda admin: _check(admin.draining, broker, force=force))
    confirm(f"stop sends to {found.name}, until you undo it?", yes=yes)
    outcome = administer(
        namesrv,
        lambda admin: Drain(admin.draining, found, patience, SystemClock(), say=_say).run(),
    )
    if as_json:
        show_json(_as_object(outcome))
    else:
        _show(outcome)
    raise typer.Exit(0 if outcome.may_stop else 1)


async def _undo(admin: Admin, broker: str) -> BrokerToDrain:
    found = await admin.draining.find(broker)
    await admin.draining.undo(found)
    return found


async def _check(draining: Draining, broker: str, *, force: bool) -> BrokerToDrain:
    """Find the broker; raises if sends to some of its topics would fail."""
    found = await draining.find(broker)
    if force or await draining.refuses_sends(found):
        return found
    obstacles = await draining.obstacles(found)
    if obstacles.only_here:
        one = obstacles.only_here[0]
        advice = f"create each on other brokers: orbitmq topic create {one}"
        if obstacles.read_only:
            drained = obstacles.read_only[0]
            advice = (
                f"{_names(obstacles.read_only)} may only be read; let producers send there again: "
                f"orbitmq broker drain {drained} --undo; or {advice}"
            )
        raise CommandError(
            f"no other broker takes messages of {_names(obstacles.only_here)}",
            hint=f"{advice}; or let sends fail: --force",
        )
    if obstacles.ordered:
        one = obstacles.ordered[0]
        raise CommandError(
            f"producers of {_names(obstacles.ordered)} stay with {found.name}: the topic is "
            "ordered, and its list of brokers says so",
            hint=f"take the broker off the list: orbitmq kv get ORDER_TOPIC_CONFIG {one}, then "
            f"orbitmq kv put ORDER_TOPIC_CONFIG {one} LIST; from then on keys are in other queues. "
            "Or let sends fail: --force",
        )
    return found


# --- draining -----------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Speed:
    """How fast a lag shrinks."""

    seen: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_SPEED_ROUNDS))

    def note(self, now_ms: float, lag: int) -> None:
        self.seen.append((now_ms, lag))

    def eta_s(self) -> int | None:
        """When the lag is zero, if it shrinks."""
        if not self.seen:
            return None
        (began_ms, before), (now_ms, lag) = self.seen[0], self.seen[-1]
        if not lag:
            return 0
        if lag >= before:
            return None
        return round(lag * (now_ms - began_ms) / (before - lag) / 1000)


class Drain:
    """Drains one broker."""

    def __init__(
        self,
        draining: Draining,
        broker: BrokerToDrain,
        patience: Patience,
        clock: Clock,
        *,
        say: Say,
    ) -> None:
        self._draining = draining
        self._broker = broker
        self._patience = patience
        self._clock = clock
        self._say = say
        self._began_ms = self._said_ms = clock.monotonic_ms()
        self._said = ""
        self._log_end = -1
        self._grown_ms = self._began_ms
        self._lonely_ms: dict[str, float] = {}
        self._speed = _Speed()

    async def run(self) -> Outcome:
        """Stop sends, and wait until everything is consumed, or patience ends."""
        if not await self._draining.refuses_sends(self._broker):
            await self._until_producers_left()
            await self._draining.refuse_sends(self._broker)
        while True:
            backlog = await self._draining.backlog(self._broker)
            self._note_growth(backlog.log_end)
            now_ms = self._clock.monotonic_ms()
            self._speed.note(now_ms, backlog.lag)
            reasons = self._reasons(backlog)
            # Asked after the backlog: what arrived since could not be in it.
            if not await self._draining.refuses_sends(self._broker):
                unread = await self._draining.unread(self._broker)
                outcome = self._outcome(backlog, unread, [_TAKES_AGAIN, *reasons])
                outcome.refuses_sends = False
                return outcome
            is_over = now_ms - self._began_ms >= self._patience.timeout_ms
            if not reasons or is_over or self._is_hopeless(backlog, now_ms):
                unread = await self._draining.unread(self._broker)
                reasons += [
                    f"group {group} has committed nothing yet, for {counted(count, 'message')}"
                    for group, count in unread.uncommitted.items()
                    if group not in self._patience.ignored_groups
                ]
                if not reasons or is_over or self._is_hopeless(backlog, now_ms):
                    return self._outcome(backlog, unread, reasons)
            self._tell("; ".join(reasons), backlog)
            await self._clock.sleep_ms(_ROUND_MS)

    async def _until_producers_left(self) -> None:
        """Route producers elsewhere; returns when nothing arrives, or has for very long."""
        quiet_ms = self._patience.quiet_ms
        began_ms = self._grown_ms = self._clock.monotonic_ms()
        while True:
            # A broker that reports a new topic takes back what the name servers were told.
            await self._draining.send_producers_away(self._broker)
            self._note_growth(await self._draining.log_end(self._broker))
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._grown_ms >= quiet_ms or (
                now_ms - began_ms >= _QUIET_TIMES_MAX * quiet_ms
            ):
                return
            left_s = round((quiet_ms - (now_ms - self._grown_ms)) / 1000)
            self._tell(f"producers go elsewhere: {left_s} s more without a message")
            await self._clock.sleep_ms(min(_ROUND_MS, quiet_ms))

    def _note_growth(self, log_end: int) -> None:
        if log_end != self._log_end:
            if self._log_end >= 0:
                self._grown_ms = self._clock.monotonic_ms()
            self._log_end = log_end

    def _reasons(self, backlog: Backlog) -> list[str]:
        """Why the broker may not be stopped yet."""
        waits = self._awaited(backlog)
        reasons = [
            f"group {one.group} is {counted(one.lag, 'message')} behind"
            + ("" if one.members else " and has no members")
            for one in waits
        ]
        if not self._patience.leaves_pending:
            reasons += _pending_texts(backlog)
        silence_ms = self._clock.monotonic_ms() - self._grown_ms
        # Compat: a Java broker takes what producers send that do not look at their routes.
        if not reasons and not backlog.pending and silence_ms < self._patience.quiet_ms:
            reasons.append("messages still arrive, or are delivered")
        return reasons

    def _awaited(self, backlog: Backlog) -> list[GroupLag]:
        return [one for one in backlog.groups if one.group not in self._patience.ignored_groups]

    def _is_hopeless(self, backlog: Backlog, now_ms: float) -> bool:
        """Whether groups that lag have had no members for too long."""
        lonely = {one.group for one in self._awaited(backlog) if not one.members}
        self._lonely_ms = {group: self._lonely_ms.get(group, now_ms) for group in lonely}
        limit_ms = self._patience.member_wait_ms
        return any(now_ms - since_ms >= limit_ms for since_ms in self._lonely_ms.values())

    def _tell(self, text: str, backlog: Backlog | None = None) -> None:
        now_ms = self._clock.monotonic_ms()
        eta_s = self._speed.eta_s() if backlog is not None and backlog.lag else None
        if eta_s is not None:
            text += f"; about {eta_s} s"
        if text != self._said and (not self._said or now_ms - self._said_ms >= _SHOWN_EVERY_MS):
            self._said, self._said_ms = text, now_ms
            self._say(text)

    def _outcome(self, backlog: Backlog, unread: Unread, reasons: list[str]) -> Outcome:
        return Outcome(
            broker=self._broker,
            may_stop=not reasons,
            reasons=reasons,
            backlog=backlog,
            unread=unread,
            eta_s=self._speed.eta_s(),
            waited_s=round((self._clock.monotonic_ms() - self._began_ms) / 1000),
            ignored_groups=self._ignored(backlog, unread),
        )

    def _ignored(self, backlog: Backlog, unread: Unread) -> tuple[str, ...]:
        behind = {one.group for one in backlog.groups} | unread.uncommitted.keys()
        return tuple(sorted(behind & self._patience.ignored_groups))


def _pending_texts(backlog: Backlog) -> list[str]:
    counts = (
        (backlog.delayed, "delayed message"),
        (backlog.timed, "message with a due time"),
        (backlog.half, "half message"),
    )
    return [
        f"{count} {noun.replace('message', 'messages') if count > 1 else noun}"
        for count, noun in counts
        if count
    ]


# --- showing ------------------------------------------------------------------------------------


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def _say(text: str) -> None:
    typer.secho(f"waiting: {escaped(text)}", dim=True, err=True)


def _as_object(outcome: Outcome) -> dict[str, object]:
    backlog, unread = outcome.backlog, outcome.unread
    return {
        "broker": outcome.broker.name,
        "address": outcome.broker.address,
        "drained": outcome.may_stop,
        "reasons": outcome.reasons,
        "lag": backlog.lag,
        "groups": [dataclasses.asdict(one) for one in backlog.groups],
        "eta_seconds": outcome.eta_s,
        "pending": {"delayed": backlog.delayed, "timed": backlog.timed, "half": backlog.half},
        "unread_topics": dict(unread.topics),
        "ignored_groups": list(outcome.ignored_groups),
        "broadcasting_groups": list(unread.broadcasting),
        "dead_letters": unread.dead_letters,
        "slaves": list(outcome.broker.slaves),
        "waited_seconds": outcome.waited_s,
    }


def _show(outcome: Outcome) -> None:
    name = outcome.broker.name
    if outcome.may_stop:
        groups = "all groups but the ignored ones" if outcome.ignored_groups else "groups"
        typer.echo(
            f"{name} may be switched off: it takes no messages, and {groups} have consumed what "
            "it has"
        )
    else:
        typer.secho(f"{name} may not be switched off yet:", fg=typer.colors.YELLOW)
        for reason in outcome.reasons:
            typer.secho(f"  {escaped(reason)}", fg=typer.colors.YELLOW)
        lonely = [one.group for one in outcome.backlog.groups if not one.members]
        if lonely:
            typer.echo(f"start members, or give: {' '.join(f'--ignore-group {g}' for g in lonely)}")
    for note in _notes(outcome):
        typer.echo(escaped(note))
    if outcome.refuses_sends:
        typer.echo(f"to let producers send to it again: orbitmq broker drain {name} --undo")
    else:
        typer.echo(f"to drain it again: orbitmq broker drain {name}")


def _groups(outcome: Outcome) -> str:
    """The ignored groups that have messages left, and how many."""
    lags = dict(outcome.unread.uncommitted)
    lags |= {one.group: one.lag for one in outcome.backlog.groups}
    return _names(
        [f"group {one}, {counted(lags[one], 'message')} behind" for one in outcome.ignored_groups]
    )


def _notes(outcome: Outcome) -> list[str]:
    """What stays on the broker, and what else to know."""
    backlog, unread = outcome.backlog, outcome.unread
    notes = []
    if outcome.ignored_groups:
        notes.append(f"ignored, and not done: {_groups(outcome)}")
    if stay := _pending_texts(backlog):
        notes.append(f"stays on it until it is due: {', '.join(stay)}")
    if unread.topics:
        notes.append(f"stays on it, as no group consumes it: {_names(list(unread.topics))}")
    if unread.dead_letters:
        notes.append(f"stays on it: {counted(unread.dead_letters, 'dead letter')}")
    if unread.broadcasting:
        notes.append(
            "not checked, as each member has its own progress: groups "
            f"{_names(unread.broadcasting)}"
        )
    if outcome.broker.slaves:
        notes.append(f"switch off its slaves, too: {_names(outcome.broker.slaves)}")
    return notes
