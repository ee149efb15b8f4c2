"""The checker finds each planted violation, and nothing in the nearest history that is legal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.replication.checker import violations
from tests.replication.findings import Promises, Rule
from tests.replication.history import MessageRead, ScanEnded, SendAcked, SendFailed
from tests.replication.stories import MASTER, OTHER_QUEUE, QUEUE, SLAVE, Story

Telling = Callable[[Story], object]
PERSIST_MS, SYNC_MS, SLACK_MS = 5_000, 10_000, 1_000
PROMISES = Promises(persist_interval_ms=PERSIST_MS, sync_interval_ms=SYNC_MS, slack_ms=SLACK_MS)


def found(tell: Telling) -> set[Rule]:
    story = Story()
    tell(story)
    return {violation.rule for violation in violations(story.history, PROMISES)}


def _concurrent(one: int, other: int) -> Telling:
    """Two sends in flight at once."""

    def tell(story: Story) -> None:
        a, b = story.begin("A"), story.begin("B", producer="q")
        story.ack(a, one).ack(b, other).end(*sorted("AB", reverse=one > other))

    return tell


def _sequential(one: int, other: int) -> Telling:
    """The second is sent once the first is acknowledged."""

    def tell(story: Story) -> None:
        story.ack(story.begin("A"), one)
        story.ack(story.begin("B", producer="q"), other).end(*sorted("AB", reverse=one > other))

    return tell


def _copied(*, copies: int, slave_end: int) -> Telling:
    """A message at byte 100 of the log."""

    def tell(story: Story) -> None:
        story.log_end(100).log_end(100, server=SLAVE)
        story.ack(story.begin("A"), 0, copies=copies, physical_offset=100)
        story.log_end(200).log_end(slave_end, server=SLAVE).end("A")

    return tell


def _two_logs(story: Story) -> Story:
    """A master and its slave."""
    return story.log_end(0).log_end(0, server=SLAVE)


def _late_commit(story: Story) -> None:
    story.assign().commit(5)
    story.begin_commit(6)
    story.commit(9).committed(6)


# --- which messages must be there -----------------------------------------------------------------

PLANTED: list[tuple[str, Rule, Telling, Telling]] = [
    (
        "an acknowledged message is missing at the end",
        Rule.KEPT,
        lambda s: s.send("A", "B").end("A"),
        lambda s: s.send("A").lose_answer("B").end("A"),
    ),
    (
        "an acknowledged message is missing from the middle",
        Rule.KEPT,
        lambda s: s.send("A", "B", "C").end("A", None, "C"),
        lambda s: s.send("A", "B", "C").end("A", "B", "C"),
    ),
    (
        "the start of a queue is gone",
        Rule.KEPT,
        lambda s: s.send("A", "B").scan("B", low=1, final=True),
        lambda s: s.send("A", "B").scan("B", low=1).end("A", "B"),
    ),
    (
        "a message is gone after a kill, although the system had it",
        Rule.KEPT,
        lambda s: s.send("A", "B", flushed=False).kill().end("A"),
        lambda s: s.send("A", "B", flushed=False).kill().end("A", "B"),
    ),
    (
        "power loss takes what was on disk",
        Rule.KEPT,
        lambda s: s.send("A").lose_power().end(),
        lambda s: s.send("A", flushed=False).lose_power().end(),
    ),
    (
        "power loss of one server takes what two had",
        Rule.KEPT,
        lambda s: s.send("A", flushed=False, copies=2).lose_power().end(),
        lambda s: s.send("A", flushed=False, copies=2).lose_power().lose_power(SLAVE).end(),
    ),
    (
        "power was lost before the message was sent",
        Rule.KEPT,
        lambda s: s.lose_power().send("A", flushed=False).end(),
        lambda s: s.send("A", flushed=False).lose_power().end(),
    ),
    (
        "a slow disk excuses a loss only with power",
        Rule.KEPT,
        lambda s: s.send("A", flushed=False).kill().end(),
        lambda s: s.send("A", flushed=False).lose_power(flushes_first=True).send("B").end("B"),
    ),
    (
        "a hole that a slave shows",
        Rule.KEPT,
        lambda s: s.send("A", "B").scan(None, "B", server=SLAVE).end("A", "B"),
        lambda s: s.send("A", "B").scan("A", server=SLAVE).end("A", "B"),
    ),
    (
        "a slave lacks what its receipt says it has",
        Rule.COPIED,
        _copied(copies=2, slave_end=100),
        _copied(copies=1, slave_end=100),
    ),
    (
        "a slave has only the messages before",
        Rule.COPIED,
        _copied(copies=2, slave_end=100),
        _copied(copies=2, slave_end=101),
    ),
    (
        "nobody read the queue in the end",
        Rule.COMPLETE,
        lambda s: s.send("A").end("A").send("B", first=1).scan("A", "B"),
        lambda s: s.send("A").scan("A").send("B", first=1).end("A", "B"),
    ),
    # --- promotions -------------------------------------------------------------------------------
    (
        "a promotion loses more than it announced",
        Rule.KEPT,
        lambda s: s.send("A", "B", "C").promote(2, 3).end("A", server=SLAVE),
        lambda s: s.send("A", "B", "C").promote(2, 3).end("A", "B", server=SLAVE),
    ),
    (
        "a promotion announced too little of the end",
        Rule.KEPT,
        lambda s: s.send("A", "B", "C").promote(1, 2).end("A", server=SLAVE),
        lambda s: s.send("A", "B", "C").promote(1, 3).end("A", server=SLAVE),
    ),
    (
        "a promotion that announced nothing loses something",
        Rule.KEPT,
        lambda s: s.send("A", "B").promote(1, 1).end("A", server=SLAVE),
        lambda s: s.send("A", "B").promote(1, None).end("A", server=SLAVE),
    ),
    (
        "what was announced as lost is there",
        Rule.ANNOUNCED,
        lambda s: s.send("A", "B").promote(1, 2).end("A", "B", server=SLAVE),
        lambda s: s.send("A", "B").promote(1, 2).scan("A", "B").end("A", server=SLAVE),
    ),
    (
        "what every server has is announced as lost",
        Rule.SAFE,
        lambda s: _two_logs(s).send("A", "B", copies=2).promote(1, 2).end("A", server=SLAVE),
        lambda s: (
            _two_logs(s).send("A", copies=2).send("B", first=1).promote(1, 2).end("A", server=SLAVE)
        ),
    ),
    (
        "what the new master acknowledged is gone",
        Rule.KEPT,
        lambda s: (
            s.send("A", "B").promote(1, 2).send("C", first=1, server=SLAVE).end("A", server=SLAVE)
        ),
        lambda s: (
            s.send("A", "B")
            .promote(1, 2)
            .send("C", first=1, server=SLAVE)
            .end("A", "C", server=SLAVE)
        ),
    ),
    (
        "an offset that was kept has another value after a promotion",
        Rule.ONE_VALUE,
        lambda s: (
            s.send("A", "B").promote(1, 2).send("C", first=0, server=SLAVE).end("C", server=SLAVE)
        ),
        lambda s: (
            s.send("A", "B")
            .promote(1, 2)
            .send("C", first=1, server=SLAVE)
            .end("A", "C", server=SLAVE)
        ),
    ),
    (
        "the old master follows, and still shows its own past",
        Rule.ONE_VALUE,
        lambda s: (
            s.send("A", "B")
            .promote(1, 2)
            .send("C", first=1, server=SLAVE)
            .follow(MASTER)
            .scan("A", "B")
            .end("A", "C", server=SLAVE)
        ),
        lambda s: (
            s.send("A", "B")
            .promote(1, 2)
            .send("C", first=1, server=SLAVE)
            .scan("A", "B")
            .follow(MASTER)
            .scan("A", "C")
            .end("A", "C", server=SLAVE)
        ),
    ),
    (
        "the old master acknowledges though it knows of its successor",
        Rule.FENCED,
        lambda s: s.promote(0, 0).fence().send("X").end(server=SLAVE),
        lambda s: s.promote(0, 0).send("X").fence().end(server=SLAVE),
    ),
    # --- values and offsets -----------------------------------------------------------------------
    (
        "two readers find different values",
        Rule.ONE_VALUE,
        lambda s: s.lose_answer("A").lose_answer("B").scan("A").scan("B", reader="r2"),
        lambda s: s.lose_answer("A").lose_answer("B").scan("A").scan("A", "B", reader="r2"),
    ),
    (
        "a consumer gets another value than a reader of the slave",
        Rule.ONE_VALUE,
        lambda s: s.lose_answer("A").lose_answer("B").scan("A", server=SLAVE).deliver("B"),
        lambda s: s.lose_answer("A").lose_answer("B").scan("A", server=SLAVE).deliver("A", "B"),
    ),
    (
        "an offset is used twice after a kill",
        Rule.ONE_VALUE,
        lambda s: s.lose_answer("A").scan("A").kill().send("B").end("B"),
        lambda s: s.lose_answer("A").scan("A").lose_power().send("B").end("B"),
    ),
    (
        "an offset is used twice after power loss under SYNC_FLUSH",
        Rule.ONE_VALUE,
        lambda s: s.lose_answer("A").scan("A").lose_power(flushes_first=True).send("B").end("B"),
        lambda s: s.lose_answer("A").scan("A").lose_power().send("B").end("B"),
    ),
    (
        "a later send gets a smaller offset",
        Rule.GROWS,
        _sequential(1, 0),
        _concurrent(1, 0),
    ),
    (
        "a queue becomes shorter",
        Rule.GROWS,
        lambda s: s.lose_answer("A").scan("A").scan(),
        lambda s: s.lose_answer("A").scan("A").scan(server=SLAVE).scan("A", server=SLAVE),
    ),
    (
        "a queue becomes shorter after a kill",
        Rule.GROWS,
        lambda s: s.lose_answer("A").scan("A").kill().scan(),
        lambda s: s.lose_answer("A").scan("A").lose_power().scan(),
    ),
    # --- order ------------------------------------------------------------------------------------
    (
        "messages of a producer change places",
        Rule.ORDER,
        lambda s: s.send("A", "B").end("B", "A"),
        lambda s: s.send("A", "B").end("A", "B"),
    ),
    (
        "a message is overtaken that others separate from its follower",
        Rule.ORDER,
        lambda s: s.send("A", "B", "C").end("C", "B", "A"),
        lambda s: s.send("A", "B", "C").end("A", "B", "C"),
    ),
    (
        "a consumer gets an earlier message later",
        Rule.ORDER,
        lambda s: s.send("A", "B").assign().deliver("B", first=1).deliver("A").end("A", "B"),
        lambda s: (
            s.send("A", "B")
            .assign()
            .deliver("A", "B")
            .assign("m2")
            .deliver("A", "B", member="m2")
            .end("A", "B")
        ),
    ),
    # --- what must not be there -------------------------------------------------------------------
    (
        "a message is stored twice though it was sent once",
        Rule.ONCE,
        lambda s: s.send("A").end("A", "A"),
        lambda s: s.send("A", tries=2).end("A", "A"),
    ),
    (
        "a message is stored in two queues",
        Rule.ONCE,
        lambda s: s.send("A").end("A").end("A", queue=OTHER_QUEUE),
        lambda s: s.send("A").lose_answer("B").end("A").end("B", queue=OTHER_QUEUE),
    ),
    (
        "a send that surely failed appears",
        Rule.FAILED,
        lambda s: s.fail("A").end("A"),
        lambda s: s.lose_answer("A").end("A", "A", "A"),
    ),
    (
        "a send that surely failed is delivered",
        Rule.FAILED,
        lambda s: s.fail("A").deliver("A"),
        lambda s: s.lose_answer("A").deliver("A"),
    ),
    (
        "a message appears that nobody sent",
        Rule.KNOWN,
        lambda s: s.end("A"),
        lambda s: (s.begin("A"), s.end("A")),
    ),
    (
        "a message appears before it is sent",
        Rule.KNOWN,
        lambda s: s.scan("A").lose_answer("A"),
        lambda s: (s.begin("A"), s.scan("A")),
    ),
    # --- committed offsets ------------------------------------------------------------------------
    (
        "a committed offset falls by itself",
        Rule.COMMITTED,
        lambda s: s.assign().commit(5).committed(4),
        lambda s: s.assign().commit(5).committed(5).committed(6),
    ),
    (
        "a committed offset falls between two looks",
        Rule.COMMITTED,
        lambda s: s.committed(5).committed(4),
        lambda s: s.committed(5).committed(4, server=SLAVE).committed(5),
    ),
    (
        "a committed offset falls by more than the interval after a kill",
        Rule.COMMITTED,
        lambda s: s.assign().commit(5).wait(PERSIST_MS + SLACK_MS).kill().committed(4),
        lambda s: s.assign().commit(5).wait(PERSIST_MS + SLACK_MS - 1).kill().committed(4),
    ),
    (
        "an old commit is lost together with a new one",
        Rule.COMMITTED,
        lambda s: s.assign().commit(5).wait(PERSIST_MS + SLACK_MS).commit(9).kill().committed(4),
        lambda s: s.assign().commit(5).wait(PERSIST_MS + SLACK_MS).commit(9).kill().committed(5),
    ),
    (
        "the interval counts until the kill, unless the server stood still",
        Rule.COMMITTED,
        lambda s: (
            s.assign().commit(5).pause().resume().wait(PERSIST_MS + SLACK_MS).kill().committed(4)
        ),
        lambda s: s.assign().commit(5).pause().wait(PERSIST_MS + SLACK_MS).kill().committed(4),
    ),
    (
        "a member that lost the queue takes its offset back",
        Rule.COMMITTED,
        lambda s: s.assign().commit(5).assign("m2").commit(3).committed(3),
        lambda s: s.assign().commit(5).assign("m2").commit(3, member="m2").committed(3),
    ),
    (
        "an offset falls below what its owner went back to",
        Rule.COMMITTED,
        lambda s: s.assign().commit(5).commit(3).committed(2),
        lambda s: s.assign().commit(5).commit(3).committed(3),
    ),
    (
        "a commit without an answer explains its own offset only",
        Rule.COMMITTED,
        lambda s: (s.assign().commit(5), s.begin_commit(6), s.commit(9), s.committed(5)),
        _late_commit,
    ),
    (
        "a promotion takes more than the last interval",
        Rule.COMMITTED,
        lambda s: (
            s.assign().commit(5).wait(SYNC_MS + SLACK_MS).promote(5, 5).committed(4, server=SLAVE)
        ),
        lambda s: (
            s.assign()
            .commit(5)
            .wait(SYNC_MS + SLACK_MS - 1)
            .promote(5, 5)
            .committed(4, server=SLAVE)
        ),
    ),
    (
        "a slave that followed all the time is promoted with old offsets",
        Rule.COMMITTED,
        lambda s: (
            s.assign()
            .commit(5)
            .lag()
            .follow(SLAVE)
            .wait(SYNC_MS + SLACK_MS)
            .promote(5, 5)
            .committed(4, server=SLAVE)
        ),
        lambda s: (
            s.assign()
            .commit(5)
            .lag()
            .wait(SYNC_MS + SLACK_MS)
            .promote(5, 5)
            .committed(4, server=SLAVE)
        ),
    ),
    (
        "a group commits past a message that it never got",
        Rule.DELIVERED,
        lambda s: s.send("A", "B").assign().deliver("B", first=1).commit(2).end("A", "B"),
        lambda s: s.send("A", "B").assign(start=1).deliver("B", first=1).commit(2).end("A", "B"),
    ),
    (
        "a group never gets what the new master stored where it had read before",
        Rule.DELIVERED,
        lambda s: (
            s.send("A", "B")
            .assign()
            .deliver("A", "B")
            .commit(2)
            .promote(1, 2)
            .send("C", first=1, server=SLAVE)
            .committed(2, server=SLAVE)
            .end("A", "C", server=SLAVE)
        ),
        lambda s: (
            s.send("A", "B")
            .assign()
            .deliver("A", "B")
            .commit(2)
            .promote(1, 2)
            .send("C", first=1, server=SLAVE)
            .committed(2)
            .committed(1, server=SLAVE)
            .end("A", "C", server=SLAVE)
        ),
    ),
]
IDS = [name.replace(" ", "-") for name, *_ in PLANTED]


@pytest.mark.parametrize(
    ("rule", "wrong"), [(rule, wrong) for _, rule, wrong, _ in PLANTED], ids=IDS
)
def test_a_planted_violation_is_found(rule: Rule, wrong: Telling) -> None:
    assert rule in found(wrong)


@pytest.mark.parametrize("legal", [legal for *_, legal in PLANTED], ids=IDS)
def test_the_nearest_legal_history_passes(legal: Telling) -> None:
    assert found(legal) == set()


def test_every_rule_has_a_planted_violation() -> None:
    assert {rule for _, rule, *_ in PLANTED} == set(Rule)


# --- what a violation says ------------------------------------------------------------------------


def test_a_violation_names_the_events_that_prove_it() -> None:
    story = Story().fail("A").end("A")

    (violation,) = violations(story.history)

    sent, failed, read = violation.events
    assert (sent.words(), type(failed), type(read)) == ("p sends A", SendFailed, MessageRead)
    assert str(violation).splitlines() == [
        f"the send of A failed for sure, and it is at offset 0 of {QUEUE} (broken: a send that "
        "surely failed never appears)",
        "    #0 at 0 ms: p sends A",
        "    #1 at 0 ms: the send of A fails, nothing is stored: refused",
        "    #2 at 0 ms: r reads A at offset 0 of T/a/0 from master",
    ]


def test_a_loss_across_a_promotion_is_told_with_the_promotion() -> None:
    story = Story().send("A", "B", "C").promote(2, 3).end("A", server=SLAVE)

    lost = [each for each in violations(story.history) if each.rule is Rule.KEPT]

    (violation,) = lost
    acked, promoted, scanned = violation.events
    assert isinstance(acked, SendAcked)
    assert acked.value == "B"
    assert promoted.words() == (
        "slave takes the place of master, announced as lost: T/a/0 from offset 2 to 2"
    )
    assert isinstance(scanned, ScanEnded)


def test_each_loss_is_reported_once_though_several_scans_show_it() -> None:
    story = Story().send("A", "B").end("A").end("A").end("A")

    lost = [each.text for each in violations(story.history) if each.rule is Rule.KEPT]

    assert lost == ["B, acknowledged at offset 1 of T/a/0, is lost: r finds nothing in its place"]


def test_an_observation_made_during_a_promotion_may_show_either_past() -> None:
    story = Story().send("A", "B")
    asked = len(story.history)
    story.promote(1, 2)
    story.history.record(
        MessageRead(reader="r", queue=QUEUE, offset=1, value="B", server=SLAVE, asked=asked)
    )
    story.send("C", first=1, server=SLAVE).end("A", "C", server=SLAVE)

    assert violations(story.history) == []
