"""Places in a pipeline file."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Where something is written; both count from 1."""

    line: int
    column: int
