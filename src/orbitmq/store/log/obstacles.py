"""Obstacles: why nothing can be appended at present, each told by who met it.

Threads: any; each source sets and clears only its own obstacle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.errors import OrbitError, StoreError

CLOSED: Final = "closed"
FENCED: Final = "fenced"
DISK_FULL: Final = "disk full"
UPKEEP: Final = "upkeep"
VISIBILITY: Final = "visibility"


class Obstacles:
    """The errors to raise, by source; none while messages can be appended."""

    __slots__ = ("errors",)

    def __init__(self) -> None:
        # Perf: always the same dictionary, so that the hot path asks only whether it is empty.
        # It keeps functions that make an error: one raised before drags its old traceback along.
        self.errors: dict[str, Callable[[], OrbitError]] = {}

    def check(self) -> None:
        """Raise the error of the obstacle that weighs most, unless all are gone meanwhile."""
        for source in (CLOSED, FENCED, DISK_FULL, UPKEEP, VISIBILITY):
            make_error = self.errors.get(source)
            if make_error is not None:
                raise make_error()


def unwritable(error: StoreError) -> Callable[[], OrbitError]:
    """The obstacle of queues or index that cannot be written."""
    return lambda: type(error)(f"queues or index cannot be written: {error}")
