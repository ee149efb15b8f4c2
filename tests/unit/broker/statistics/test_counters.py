"""Counters: one per topic, one per group and topic."""

from __future__ import annotations

from orbitmq.broker.statistics.counters import Counters


def test_messages_and_bytes_are_counted_by_name() -> None:
    counters = Counters()

    counters.put("a").add(1, 100)
    counters.put("a").add(2, 50)
    counters.read("a", "g").add(1, 7)

    assert (counters.put("a").messages, counters.put("a").bytes) == (3, 150)
    assert counters.put("b").messages == 0
    assert (counters.read("a", "g").messages, counters.read("a", "h").messages) == (1, 0)


def test_send_backs_and_dead_letters_are_counted_separately() -> None:
    counters = Counters()

    counters.send_back("a", "g").add(2, 20)
    counters.dead_letter("a", "g").add(1, 10)

    assert counters.send_backs["a", "g"].messages == 2
    assert counters.dead_letters["a", "g"].messages == 1


def test_deleted_topics_and_groups_are_dropped_but_stay_in_the_totals() -> None:
    counters = Counters()
    counters.put("gone").add(3, 30)
    counters.put("kept").add(4, 40)
    for topic, group in (("gone", "g"), ("kept", "g"), ("kept", "gone group")):
        counters.read(topic, group).add(1, 10)

    counters.forget(knows_topic={"kept"}.__contains__, knows_group={"g"}.__contains__)

    assert list(counters.puts) == ["kept"]
    assert list(counters.reads) == [("kept", "g")]
    assert (counters.other_puts.messages, counters.other_puts.bytes) == (3, 30)
    assert counters.other_reads.messages == 2


def test_names_beyond_the_limit_share_a_counter() -> None:
    counters = Counters(rows_max=2)

    for topic in "abcd":
        counters.put(topic).add(1, 10)

    assert list(counters.puts) == ["a", "b"]
    assert counters.other_puts.messages == 2
