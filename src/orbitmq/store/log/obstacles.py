"""Obstacles: why nothing can be appended now, each set by the part that hit it.

Threads: any; each source sets and clears only its own obstacle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.errors import OrbitError, StoreError

CLOSED: Final = "closed"
FENCED: Final = "fenced"
DISK_FULL: Final = "disk full"
OPENING: Final = "opening"
UPKEEP: Final = "upkeep"
VISIBILITY: Final = "visibility"


class Obstacles:
    """The errors to raise, by source; empty while messages can be appended."""

    __slots__ = ("errors",)

    def __init__(self) -> None:
        # Perf: always the same dictionary, so that the hot path only checks whether it is empty.
        # It holds functions that make an error: an error raised twice keeps its old traceback.
        self.errors: dict[str, Callable[[], OrbitError]] = {}

    def check(self) -> None:
        """Raise the error of the most serious obstacle, unless all have cleared."""
        for source in (CLOSED, FENCED, DISK_FULL, OPENING, UPKEEP, VISIBILITY):
            make_error = self.errors.get(source)
            if make_error is not None:
                raise make_error()


def unwritable(error: StoreError) -> Callable[[], OrbitError]:
    """The obstacle for files that cannot be written."""
    return lambda: type(error)(f"cannot write to the store: {error}")
