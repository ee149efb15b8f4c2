"""Samples: rates, windows and totals from counters."""

from __future__ import annotations

from orbitmq.broker.statistics.counters import Counters
from orbitmq.broker.statistics.samples import CounterKind, Samples
from orbitmq.clock import ManualClock

SYSTEM_TOPIC = "SCHEDULE_TOPIC_XXXX"
TEN_SECONDS_MS = 10_000
DAY_MS = 86_400_000


class Known:
    """The existing topics and groups."""

    def __init__(self) -> None:
        self.topics = {"orders", SYSTEM_TOPIC}
        self.groups = {"g"}


def _samples(counters: Counters, clock: ManualClock, known: Known | None = None) -> Samples:
    known = known or Known()
    return Samples(
        counters,
        is_system=lambda topic: topic == SYSTEM_TOPIC,
        knows_topic=lambda topic: topic in known.topics,
        knows_group=lambda group: group in known.groups,
        clock=clock,
    )


async def _pass(samples: Samples, clock: ManualClock, rounds: int) -> None:
    for _ in range(rounds):
        await clock.advance(TEN_SECONDS_MS)
        samples.sample()


async def test_rates_of_topics_and_groups_are_those_of_the_last_minute() -> None:
    clock, counters = ManualClock(), Counters()
    samples = _samples(counters, clock)
    for _ in range(6):
        counters.put("orders").add(20, 2000)
        counters.read("orders", "g").add(10, 1000)
        await _pass(samples, clock, 1)

    assert samples.puts_per_second("orders") == 2
    assert samples.reads_per_second("orders", "g") == 1
    assert samples.puts_per_second("unknown") == 0

    await _pass(samples, clock, 7)
    assert samples.puts_per_second("orders") == 0


async def test_a_counter_is_seen_in_all_three_windows() -> None:
    clock, counters = ManualClock(), Counters()
    samples = _samples(counters, clock)
    counters.send_back("orders", "g").add(6, 60)

    await _pass(samples, clock, 6)
    grown = samples.growth(CounterKind.SEND_BACKS, ("orders", "g"))

    assert grown is not None
    assert grown.minute.messages == 6
    assert grown.hour.messages == 0  # the next sample is taken after ten minutes
    await _pass(samples, clock, 54)
    grown = samples.growth(CounterKind.SEND_BACKS, ("orders", "g"))
    assert grown is not None
    assert (grown.minute.messages, grown.hour.messages) == (0, 6)


async def test_rates_over_three_spans_are_empty_until_the_broker_ran_that_long() -> None:
    clock, counters = ManualClock(), Counters()
    samples = _samples(counters, clock)

    assert samples.rates(lambda calls: calls.puts) == "  "
    await clock.advance(TEN_SECONDS_MS)
    counters.put("orders").add(50, 5000)
    assert samples.rates(lambda calls: calls.puts) == "5.0  "

    samples.sample()
    await _pass(samples, clock, 5)
    assert samples.rates(lambda calls: calls.puts) == f"0.0 {50 / 60} "
    await _pass(samples, clock, 54)
    assert samples.rates(lambda calls: calls.puts) == f"0.0 0.0 {50 / 600}"


async def test_system_topics_are_not_in_the_daily_totals() -> None:
    clock, counters = ManualClock(), Counters()
    samples = _samples(counters, clock)
    counters.put("orders").add(3, 30)
    counters.put(SYSTEM_TOPIC).add(5, 50)
    counters.read("orders", "g").add(2, 20)

    await clock.advance(DAY_MS)
    samples.sample()
    counters.put("orders").add(1, 10)

    assert (samples.days.this_morning.puts, samples.days.this_morning.reads) == (3, 2)
    assert samples.totals().puts == 4
    all_puts, user_puts = (
        samples.growth(CounterKind.ALL_PUTS),
        samples.growth(CounterKind.USER_PUTS),
    )
    assert all_puts is not None
    assert user_puts is not None
    assert (all_puts.minute.messages, user_puts.minute.messages) == (8, 3)


async def test_deleted_topics_and_groups_are_dropped_within_ten_minutes() -> None:
    clock, counters, known = ManualClock(), Counters(), Known()
    samples = _samples(counters, clock, known)
    counters.put("orders").add(3, 30)
    counters.read("orders", "g").add(3, 30)
    await _pass(samples, clock, 1)

    known.topics.clear()
    await _pass(samples, clock, 60)

    assert counters.puts == {}
    assert counters.reads == {}
    assert samples.growth(CounterKind.PUTS, "orders") is None
    assert samples.growth(CounterKind.READS, ("orders", "g")) is None
    assert samples.totals().puts == 3


async def test_sends_that_did_not_wait_for_the_disk_count_as_taking_no_time() -> None:
    clock, counters = ManualClock(), Counters()
    samples = _samples(counters, clock)
    counters.put("orders").add(10, 100)
    counters.put_waits.note_round(12, 12, 4)
    counters.read_waits.note(30)

    await _pass(samples, clock, 6)

    assert counters.put_waits.formatted().startswith("[<=0ms]:6 [0~10ms]:0 [10~50ms]:4 ")
    assert "[10~50ms]:1 " in counters.read_waits.formatted()
