"""What somebody meant who wrote a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

_NAMED_MAX: Final = 12


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not known: the nearest one, or all."""
    names: Sequence[str] = list(known)
    by_lower = {one.lower(): one for one in names}
    nearest = difflib.get_close_matches(name.lower(), by_lower, n=1)
    if nearest:
        return f"did you mean {by_lower[nearest[0]]}?"
    if not names:
        return "nothing is named before it"
    more = ", …" if len(names) > _NAMED_MAX else ""
    return f"there are {', '.join(names[:_NAMED_MAX])}{more}"
