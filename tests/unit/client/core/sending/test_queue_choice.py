"""Which queue gets the next message."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.sending.broker_faults import BrokerFaults
from orbitmq.client.core.sending.queue_choice import QueueChoice
from orbitmq.model.queues import MessageQueue

NONE = BrokerFaults()
BROKERS = st.lists(st.integers(1, 4), min_size=1, max_size=5)


def queues_of(counts: list[int]) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(broker_name=f"broker-{broker}", queue_id=queue_id, topic="t")
        for broker, count in enumerate(counts)
        for queue_id in range(count)
    )


@given(BROKERS)
def test_every_queue_gets_the_same_number_of_messages(counts: list[int]) -> None:
    choice = QueueChoice(queues_of(counts))

    chosen = Counter(choice.next(NONE, 0) for _ in range(3 * len(choice.queues)))

    assert chosen == dict.fromkeys(range(len(choice.queues)), 3)


def test_producers_start_at_random_queues() -> None:
    queues = queues_of([8])

    starts = {QueueChoice(queues).next(NONE, 0) for _ in range(200)}

    assert len(starts) > 1


@given(BROKERS, st.data())
def test_a_retry_goes_to_another_broker_if_there_is_one(
    counts: list[int], data: st.DataObject
) -> None:
    choice = QueueChoice(queues_of(counts))
    last = data.draw(st.sampled_from(choice.queues)).broker_name

    chosen = choice.queues[choice.next(NONE, 0, last_broker=last)]

    assert (chosen.broker_name != last) == (len(counts) > 1)


@given(BROKERS, st.data())
def test_avoided_brokers_are_skipped_while_there_are_others(
    counts: list[int], data: st.DataObject
) -> None:
    choice = QueueChoice(queues_of(counts))
    names = sorted({queue.broker_name for queue in choice.queues})
    avoided = data.draw(st.sets(st.sampled_from(names)))
    last = data.draw(st.sampled_from(["", *names]))
    faults = BrokerFaults()
    for moment, name in enumerate(sorted(avoided)):
        faults.note_failure(name, float(moment))

    chosen = choice.queues[choice.next(faults, 10, last_broker=last)].broker_name

    others = [name for name in names if name != last]
    good = [name for name in others if name not in avoided]
    if good:
        assert chosen in good
    elif others:
        # The one that failed first is the first to be used again.
        assert chosen == min(others)
    else:
        assert chosen == last


@given(BROKERS)
def test_the_queues_of_good_brokers_are_still_taken_in_turn(counts: list[int]) -> None:
    choice = QueueChoice(queues_of([2, *counts]))
    faults = BrokerFaults()
    faults.note_failure("broker-0", 0)
    good = len(choice.queues) - 2

    chosen = Counter(choice.next(faults, 1) for _ in range(2 * good))

    assert chosen == dict.fromkeys(range(2, len(choice.queues)), 2)


def test_a_broker_is_used_again_once_its_pause_is_over() -> None:
    choice = QueueChoice(queues_of([1, 1]), start=0)
    faults = BrokerFaults()
    faults.note_failure("broker-0", 0)

    assert {choice.next(faults, 9_999) for _ in range(4)} == {1}
    assert {choice.next(faults, 10_000) for _ in range(4)} == {0, 1}
