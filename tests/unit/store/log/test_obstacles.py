"""Why nothing can be appended."""

from __future__ import annotations

import pytest

from orbitmq.errors import DiskFullError, StateError, StoreError
from orbitmq.store.log.obstacles import CLOSED, UPKEEP, VISIBILITY, Obstacles, unwritable


def test_there_are_no_obstacles_at_first() -> None:
    obstacles = Obstacles()

    obstacles.check()

    assert not obstacles.errors


def test_the_most_serious_obstacle_is_raised() -> None:
    obstacles = Obstacles()
    obstacles.errors[VISIBILITY] = unwritable(StoreError("index"))
    obstacles.errors[UPKEEP] = unwritable(DiskFullError("queue", hint="make room"))

    with pytest.raises(DiskFullError, match=r"cannot write to the store: queue \(make room"):
        obstacles.check()

    obstacles.errors[CLOSED] = lambda: StateError("closed")
    with pytest.raises(StateError):
        obstacles.check()


def test_every_check_raises_a_new_error() -> None:
    obstacles = Obstacles()
    obstacles.errors[UPKEEP] = unwritable(StoreError("full"))

    errors = []
    for _ in range(2):
        with pytest.raises(StoreError) as caught:
            obstacles.check()
        errors.append(caught.value)

    assert errors[0] is not errors[1]
