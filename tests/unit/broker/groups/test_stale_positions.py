"""Which positions of consumers a promoted master trusts."""

from __future__ import annotations

import pytest

from orbitmq.broker.groups.stale_positions import CHECKED_MS, GroupQueue, StalePositions
from orbitmq.clock import ManualClock
from orbitmq.protocol.requests.pulling import PullFlag

QUEUE = GroupQueue("readers", "T", 0)
END = 80
ADDRESS, OTHER = "127.0.0.1:50000", "127.0.0.1:50001"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def positions(clock: ManualClock) -> StalePositions:
    """Those at a master whose queue ended at 80 when it was promoted."""
    found = StalePositions(clock)
    found.begin({("T", 0): END}, frozenset({("readers", "T")}))
    return found


def test_a_member_above_the_end_of_the_promoted_log_is_sent_back(positions: StalePositions) -> None:
    assert positions.sent_back(QUEUE, "a", ADDRESS, 100, 0) == END
    assert positions.sent_back(QUEUE, "a", ADDRESS, END, 0) is None
    assert positions.sent_back(QUEUE, "a", ADDRESS, 120, 0) is None


def test_a_member_that_read_on_before_its_first_heartbeat_is_not_sent_back(
    positions: StalePositions,
) -> None:
    assert positions.sent_back(QUEUE, None, ADDRESS, END, 0) is None

    assert positions.sent_back(QUEUE, "a", ADDRESS, END + 1, 0) is None
    assert not positions.refuses(QUEUE, "a", END + 1)


def test_a_member_that_may_not_have_heard_of_it_is_sent_back_again(
    positions: StalePositions,
) -> None:
    assert positions.sent_back(QUEUE, "a", ADDRESS, 100, 0) == END

    # Its connection was lost, with the reply.
    assert positions.sent_back(QUEUE, "a", OTHER, 100, 0) == END

    assert positions.sent_back(QUEUE, "a", OTHER, 100, 0) is None


def test_each_member_is_checked(positions: StalePositions) -> None:
    assert positions.sent_back(QUEUE, "a", ADDRESS, END, 0) is None

    assert positions.sent_back(QUEUE, "b", OTHER, 100, 0) == END


def test_a_queue_that_the_promoted_log_lacks_is_read_from_its_start(
    positions: StalePositions,
) -> None:
    assert positions.sent_back(QUEUE._replace(queue_id=1), "a", ADDRESS, 5, 0) == 0


def test_a_member_takes_over_at_what_another_has_committed(positions: StalePositions) -> None:
    assert positions.sent_back(QUEUE, "a", ADDRESS, END, 0) is None
    assert not positions.refuses(QUEUE, "a", 110)

    assert positions.sent_back(QUEUE, "b", OTHER, 110, 0) is None
    assert positions.sent_back(QUEUE, "c", OTHER, 111, 0) == 110


def test_a_commit_above_the_end_is_refused_until_the_member_has_read_on(
    positions: StalePositions,
) -> None:
    assert positions.refuses(QUEUE, "a", 100)
    assert not positions.refuses(QUEUE, "a", END)
    positions.sent_back(QUEUE, "a", ADDRESS, 100, 0)
    assert positions.refuses(QUEUE, "a", 100)
    positions.sent_back(QUEUE, "a", ADDRESS, END, 0)

    assert not positions.refuses(QUEUE, "a", 100)


def test_a_member_that_insists_on_its_offset_gets_it(positions: StalePositions) -> None:
    positions.sent_back(QUEUE, "a", ADDRESS, 100, 0)

    assert positions.sent_back(QUEUE, "a", ADDRESS, 100, 0) is None


def test_an_offset_that_an_operator_has_set_is_trusted(positions: StalePositions) -> None:
    positions.allow(QUEUE, 100)

    assert positions.sent_back(QUEUE, "a", ADDRESS, 100, 0) is None


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (PullFlag.SUBSCRIPTION, None),
        (PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL, END),
        (PullFlag.SUSPEND, END),
    ],
    ids=["a pull consumer", "a lite pull consumer", "a push consumer"],
)
def test_consumers_that_keep_their_offsets_themselves_are_trusted(
    positions: StalePositions, flags: PullFlag, expected: int | None
) -> None:
    assert positions.sent_back(QUEUE, "a", ADDRESS, 100, int(flags)) == expected


def test_a_group_without_committed_offsets_is_trusted(positions: StalePositions) -> None:
    new = QUEUE._replace(group="new")

    assert positions.sent_back(new, "a", ADDRESS, 100, 0) is None
    assert not positions.refuses(new, "a", 100)


async def test_positions_are_checked_for_a_while_after_a_promotion(
    positions: StalePositions, clock: ManualClock
) -> None:
    assert not StalePositions(clock).are_checked
    assert positions.are_checked

    await clock.advance(CHECKED_MS)

    assert not positions.are_checked


def test_as_many_members_are_known_as_there_is_room_for(clock: ManualClock) -> None:
    positions = StalePositions(clock, member_queues_max=2)
    positions.begin({("T", 0): END}, frozenset({("readers", "T")}))
    positions.sent_back(QUEUE, "a", ADDRESS, END, 0)
    assert positions.are_checked

    positions.sent_back(QUEUE, "b", OTHER, END, 0)

    assert not positions.are_checked
