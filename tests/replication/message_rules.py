"""Rules about messages: which are kept, where, in which order, and which never appear."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.replication.findings import Rule, Violation
from tests.replication.history import (
    Assigned,
    Delivered,
    Event,
    Fenced,
    LogEndSeen,
    MessageRead,
    PowerLost,
    Promoted,
    Queue,
    ScanEnded,
    SendAcked,
    SendFailed,
    SendInvoked,
)
from tests.replication.lineages import Cut, Lineages, Seen, Side

_Shown = MessageRead | Delivered


class Claim(NamedTuple):
    """An event that says which value an offset has."""

    queue: Queue
    offset: int
    value: str
    seen: Seen
    event: Event


class Messages:
    """A history's sends, acknowledgements, messages read and scans, as the rules need them."""

    def __init__(self, history: Sequence[Event]) -> None:
        self.history = history
        self.lineages = Lineages(history)
        self.sends = {e.value: e for e in history if isinstance(e, SendInvoked)}
        self.acks = [e for e in history if isinstance(e, SendAcked)]
        self.failures = {e.value: e for e in history if isinstance(e, SendFailed)}
        self.shown: list[_Shown] = [e for e in history if isinstance(e, (MessageRead, Delivered))]
        self.scans = [e for e in history if isinstance(e, ScanEnded)]
        self._power_losses = [e for e in history if isinstance(e, PowerLost)]
        self.found = {scan.number: _messages_of(history, scan) for scan in self.scans}

    def lost_with_power(self, ack: SendAcked) -> bool:
        """Whether every server that held a message lost power before it was on disk."""
        if ack.flushed:
            return False
        losses = {
            event.server
            for event in self._power_losses
            if event.number > ack.send and event.broker == ack.queue.broker
        }
        return len(losses) >= ack.copies

    def servers(self) -> dict[str, set[str]]:
        """The servers of each broker, as far as their logs were seen."""
        servers: dict[str, set[str]] = defaultdict(set)
        for event in self.history:
            if isinstance(event, LogEndSeen):
                servers[event.broker].add(event.server)
        return servers

    def claims(self) -> Iterator[Claim]:
        """Everything that says which value an offset has."""
        for ack in self.acks:
            if not self.lost_with_power(ack):
                yield Claim(ack.queue, ack.offset, ack.value, _seen(ack), ack)
        for shown in self.shown:
            yield Claim(shown.queue, shown.offset, shown.value, _seen(shown), shown)


def _seen(event: SendAcked | _Shown | ScanEnded) -> Seen:
    asked = event.send + 1 if isinstance(event, SendAcked) else event.asked
    return Seen(event.server, asked, event.number)


def _messages_of(history: Sequence[Event], scan: ScanEnded) -> dict[int, MessageRead]:
    """The messages of one scan, by offset."""
    return {
        event.offset: event
        for event in history[scan.asked : scan.number]
        if isinstance(event, MessageRead)
        and (event.reader, event.queue, event.server) == (scan.reader, scan.queue, scan.server)
    }


# --- nothing acknowledged is lost -----------------------------------------------------------------


def kept(messages: Messages) -> Iterator[Violation]:
    """Find acknowledged messages that a later scan does not show where it should."""
    by_queue = defaultdict(list)
    for scan in messages.scans:
        by_queue[scan.queue].append(scan)
    for ack in messages.acks:
        for scan in by_queue[ack.queue]:
            missing = _missing(messages, ack, scan)
            if missing is not None:
                yield missing
                break


def _missing(messages: Messages, ack: SendAcked, scan: ScanEnded) -> Violation | None:
    """Tell whether a scan should show a message, and does not."""
    found = messages.found[scan.number].get(ack.offset)
    # Another value at its offset is for another rule, unless nothing can be said about it there.
    if scan.asked <= ack.number or (found is not None and found.value == ack.value):
        return None
    if not scan.final and not scan.low <= ack.offset < scan.end:
        return None
    if messages.lost_with_power(ack) or any(
        _explains(cut, ack, scan) for cut in messages.lineages.cuts
    ):
        return None
    reader = f"{scan.reader} finds " + (
        f"{found.value} in its place" if found else "nothing in its place"
    )
    return Violation(
        Rule.KEPT,
        f"{ack.value}, acknowledged at offset {ack.offset} of {ack.queue}, is lost: {reader}",
        (ack, *_between(messages, ack, scan), *([found] if found else ()), scan),
    )


def _explains(cut: Cut, ack: SendAcked, scan: ScanEnded) -> bool:
    """Whether a promotion allows that a scan does not show a message acknowledged before it."""
    loss = cut.loss_of(ack.queue)
    if loss is None or ack.offset < loss.kept:
        return False
    acked, scanned = cut.side(_seen(ack)), cut.side(_seen(scan))
    if acked is Side.AFTER:
        # A server that does not yet follow the new master.
        return scanned is not Side.AFTER
    # The old master may go on without contact: what it acknowledges then is lost, announced or not.
    is_past = loss.includes(ack.offset) or ack.number > cut.event.number
    return is_past and scanned is not Side.BEFORE


def _between(messages: Messages, first: Event, last: Event) -> list[Event]:
    """The cuts between two events: context for whoever reads a violation."""
    cuts = [cut.event for cut in messages.lineages.cuts]
    return [event for event in cuts if first.number < event.number < last.number]


def complete(messages: Messages) -> Iterator[Violation]:
    """Find queues with acknowledged messages that were not read in the end."""
    last_ack = {ack.queue: ack for ack in messages.acks}
    for queue, ack in last_ack.items():
        scans = [s for s in messages.scans if s.queue == queue and s.final]
        if not any(scan.asked > ack.number for scan in scans):
            yield Violation(
                Rule.COMPLETE, f"{queue} was not read after its last acknowledgement", (ack,)
            )


def announced(messages: Messages) -> Iterator[Violation]:
    """Find messages that a promotion announced as lost, and that are there."""
    for cut in messages.lineages.cuts:
        if not isinstance(cut.event, Promoted):
            continue
        before = {
            (ack.queue, ack.offset, ack.value): ack
            for ack in messages.acks
            if ack.number < cut.event.number
        }
        for shown in messages.shown:
            loss = cut.loss_of(shown.queue)
            ack = before.get((shown.queue, shown.offset, shown.value))
            if (
                ack is not None
                and loss is not None
                and loss.includes(shown.offset)
                and cut.side(_seen(shown)) is Side.AFTER
            ):
                yield Violation(
                    Rule.ANNOUNCED,
                    f"{ack.value} was announced as lost, and is at offset {ack.offset} of "
                    f"{ack.queue} nevertheless",
                    (ack, cut.event, shown),
                )
                before.pop((shown.queue, shown.offset, shown.value))


def lost_to(cut: Cut, messages: Messages) -> list[SendAcked]:
    """The messages that a promotion lost, acknowledged before it or by the old master since."""
    return [
        ack
        for ack in messages.acks
        if (loss := cut.loss_of(ack.queue)) is not None
        and ack.offset >= loss.kept
        and cut.side(_seen(ack)) is Side.BEFORE
    ]


def safe(messages: Messages) -> Iterator[Violation]:
    """Find messages that a promotion announced as lost, and that its slave has by their receipt.

    It has what every server has; and if its log is the longest, what the old master and any slave
    have.
    """
    servers = messages.servers()
    for cut in messages.lineages.cuts:
        event = cut.event
        if not isinstance(event, Promoted):
            continue
        enough = 2 if event.is_longest else len(servers[event.broker])
        for ack in lost_to(cut, messages):
            if (
                ack.copies >= enough > 0
                and ack.server == event.deposed
                and ack.number < event.number
            ):
                yield Violation(
                    Rule.SAFE,
                    f"{ack.value} has {ack.copies} copies, says its receipt, and a promotion "
                    f"announces offset {ack.offset} of {ack.queue} as lost",
                    (ack, event),
                )
                break


def fenced(messages: Messages) -> Iterator[Violation]:
    """Find sends that a replaced master acknowledged though it knew."""
    for fence in messages.history:
        if not isinstance(fence, Fenced):
            continue
        for ack in messages.acks:
            if ack.server == fence.server and ack.send > fence.number:
                later = [
                    event
                    for event in messages.history[fence.number : ack.number]
                    if isinstance(event, Promoted) and event.server == fence.server
                ]
                if not later:
                    yield Violation(
                        Rule.FENCED,
                        f"{ack.server} acknowledges {ack.value} though it knows its successor",
                        (fence, ack),
                    )
                    break


def copied(messages: Messages) -> Iterator[Violation]:
    """Find servers that lack a message which every server should have, by its receipt.

    Logs only grow, but where power is lost or a promotion cuts them: nothing is said after that.
    """
    servers = messages.servers()
    cut_at = {cut.event.broker: cut.event.number for cut in reversed(messages.lineages.cuts)}
    everywhere = [ack for ack in messages.acks if ack.copies >= len(servers[ack.queue.broker]) > 0]
    reported = set()
    for event in messages.history:
        if not isinstance(event, LogEndSeen) or event.server in reported:
            continue
        if event.number > cut_at.get(event.broker, len(messages.history)):
            continue
        for ack in everywhere:
            if (
                ack.queue.broker == event.broker
                and ack.number < event.asked
                and ack.physical_offset >= event.end
            ):
                reported.add(event.server)
                yield Violation(
                    Rule.COPIED,
                    f"{ack.value} is at byte {ack.physical_offset} of {ack.copies} logs, says its "
                    f"receipt, and that of {event.server} ends at {event.end}",
                    (ack, event),
                )
                break


# --- offsets and values ---------------------------------------------------------------------------


def one_value(messages: Messages) -> Iterator[Violation]:
    """Find offsets that have two values."""
    first: dict[tuple[object, ...], Claim] = {}
    reported: set[tuple[Queue, int]] = set()
    for claim in messages.claims():
        past = messages.lineages.past(claim.queue, claim.offset, claim.seen)
        if past is None:
            continue
        other = first.setdefault((claim.queue, claim.offset, past), claim)
        if other.value != claim.value and (claim.queue, claim.offset) not in reported:
            reported.add((claim.queue, claim.offset))
            yield Violation(
                Rule.ONE_VALUE,
                f"offset {claim.offset} of {claim.queue} is both {other.value} and {claim.value}",
                (other.event, claim.event),
            )


def grows(messages: Messages) -> Iterator[Violation]:
    """Find sends with a smaller offset than an earlier one, and queues that became shorter."""
    yield from _acks_grow(messages)
    yield from _ends_grow(messages)


def _acks_grow(messages: Messages) -> Iterator[Violation]:
    by_past = defaultdict(list)
    for ack in messages.acks:
        past = messages.lineages.past_of_server(ack.queue, _seen(ack))
        if past is not None and not messages.lost_with_power(ack):
            by_past[ack.queue, past].append(ack)
    for (queue, _), acks in by_past.items():
        for earlier, later in _overtaking(acks, lambda ack: ack.offset):
            yield Violation(
                Rule.GROWS,
                f"{later.value} was sent after {earlier.value} was acknowledged at offset "
                f"{earlier.offset} of {queue}, and got offset {later.offset}",
                (earlier, messages.sends.get(later.value, later), later),
            )
            break


def _overtaking(
    acks: Sequence[SendAcked], place: Callable[[SendAcked], int]
) -> Iterator[tuple[SendAcked, SendAcked]]:
    """Find sends that began after another was acknowledged, and have no higher place than that.

    The acknowledgements are given in the order they came.
    """
    ended = iter(acks)
    upcoming = next(ended, None)
    highest: SendAcked | None = None
    for ack in sorted(acks, key=lambda each: each.send):
        while upcoming is not None and upcoming.number < ack.send:
            if highest is None or place(upcoming) > place(highest):
                highest = upcoming
            upcoming = next(ended, None)
        if highest is not None and place(ack) <= place(highest):
            yield highest, ack


def _ends_grow(messages: Messages) -> Iterator[Violation]:
    highest: dict[tuple[object, ...], tuple[int, Event]] = {}
    reported = set()
    for event in messages.history:
        if not isinstance(event, (MessageRead, Delivered, ScanEnded)):
            continue
        past = messages.lineages.past_of_server(event.queue, _seen(event))
        if past is None:
            continue
        key = event.server, event.queue, past
        end = event.end if isinstance(event, ScanEnded) else event.offset + 1
        before = highest.get(key)
        if before is None or end > before[0]:
            highest[key] = end, event
        elif (
            isinstance(event, ScanEnded)
            and end < before[0]
            and before[1].number < event.asked
            and key not in reported
        ):
            reported.add(key)
            yield Violation(
                Rule.GROWS,
                f"{event.queue} of {event.server} ended at {before[0]} before, and now at {end}",
                (before[1], event),
            )


def order(messages: Messages) -> Iterator[Violation]:
    """Find messages that appear before others which their producer had acknowledged before."""
    yield from _stored_in_order(messages)
    yield from _delivered_in_order(messages)


def _stored_in_order(messages: Messages) -> Iterator[Violation]:
    for scan in messages.scans:
        first: dict[str, MessageRead] = {}
        for found in messages.found[scan.number].values():
            known = first.get(found.value)
            if known is None or found.offset < known.offset:
                first[found.value] = found
        by_producer = defaultdict(list)
        for ack in messages.acks:
            if ack.queue == scan.queue and ack.value in first:
                by_producer[ack.producer].append(ack)
        for acks in by_producer.values():
            for earlier, later in _overtaking(acks, lambda ack: first[ack.value].offset):  # noqa: B023  # used at once
                one, other = first[earlier.value], first[later.value]
                yield Violation(
                    Rule.ORDER,
                    f"{later.producer} sent {later.value} after {earlier.value} was "
                    f"acknowledged, and it is before that in {scan.queue}",
                    (earlier, messages.sends.get(later.value, later), later, other, one),
                )
                return


def _delivered_in_order(messages: Messages) -> Iterator[Violation]:
    last: dict[tuple[str, str, Queue], Delivered] = {}
    for event in messages.history:
        if isinstance(event, Assigned):
            last.pop((event.group, event.member, event.queue), None)
        elif isinstance(event, Delivered):
            key = event.group, event.member, event.queue
            before = last.get(key)
            if before is not None and event.offset <= before.offset:
                yield Violation(
                    Rule.ORDER,
                    f"{event.member} gets offset {event.offset} of {event.queue} after offset "
                    f"{before.offset}",
                    (before, event),
                )
            last[key] = event


def once(messages: Messages) -> Iterator[Violation]:
    """Find messages that one send stored twice."""
    acks = {ack.value: ack for ack in messages.acks if ack.tries == 1}
    places: dict[tuple[object, ...], MessageRead] = {}
    reported = set()
    for scan in messages.scans:
        past = messages.lineages.past_of_server(scan.queue, _seen(scan))
        for found in messages.found[scan.number].values():
            ack = acks.get(found.value)
            if ack is None or past is None:
                continue
            other = places.setdefault((found.value, past), found)
            is_elsewhere = (other.queue, other.offset) != (found.queue, found.offset)
            if is_elsewhere and other.queue.broker == found.queue.broker:
                if found.value not in reported:
                    yield Violation(
                        Rule.ONCE,
                        f"{found.value} was sent once, and is stored at {other.queue} "
                        f"{other.offset} and at {found.queue} {found.offset}",
                        (ack, other, found),
                    )
                reported.add(found.value)


# --- what must not appear -------------------------------------------------------------------------


def failed(messages: Messages) -> Iterator[Violation]:
    """Find messages whose send surely failed."""
    reported = set()
    for shown in messages.shown:
        failure = messages.failures.get(shown.value)
        if failure is not None and shown.value not in reported:
            reported.add(shown.value)
            yield Violation(
                Rule.FAILED,
                f"the send of {shown.value} failed for sure, and it is at offset {shown.offset} of "
                f"{shown.queue}",
                (messages.sends.get(shown.value, failure), failure, shown),
            )


def known(messages: Messages) -> Iterator[Violation]:
    """Find messages that nobody sent, or that appear before they were."""
    reported = set()
    for shown in messages.shown:
        send = messages.sends.get(shown.value)
        if (send is None or send.number > shown.number) and shown.value not in reported:
            reported.add(shown.value)
            text = "nobody sent" if send is None else "was not yet sent"
            subject = f"{text} {shown.value}" if send is None else f"{shown.value} {text}"
            yield Violation(
                Rule.KNOWN,
                f"{subject}, which is at offset {shown.offset} of {shown.queue}",
                (shown,) if send is None else (shown, send),
            )


RULES = (
    kept,
    complete,
    copied,
    announced,
    safe,
    fenced,
    one_value,
    grows,
    order,
    once,
    failed,
    known,
)
