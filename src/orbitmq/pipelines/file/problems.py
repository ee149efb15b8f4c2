"""What is wrong with a pipeline file: all of it, each with its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.errors import PipelineFileError

if TYPE_CHECKING:
    from orbitmq.pipelines.file.places import Place

PROBLEMS_MAX: Final = 50
_TEXT_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake."""

    line: int
    column: int
    text: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.hint})" if self.hint else self.text


@dataclass(slots=True)
class Problems:
    """Collects mistakes, so that one look at a file finds all."""

    file: Path
    found: list[Problem] = field(default_factory=list)

    def add(self, place: Place, text: str, *, hint: str = "") -> None:
        """Note a mistake."""
        if len(self.found) < PROBLEMS_MAX:
            self.found.append(Problem(place.line, place.column, text[:_TEXT_MAX], hint[:_TEXT_MAX]))

    def raise_if_any(self) -> None:
        """Raise PipelineFileError if there are mistakes, in the order of the file."""
        if self.found:
            ordered = sorted(self.found, key=lambda one: (one.line, one.column))
            raise PipelineFileError(
                [f"{self.file}:{one.line}:{one.column}: {one}" for one in ordered]
            )
