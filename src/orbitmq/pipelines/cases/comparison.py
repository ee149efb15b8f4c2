"""Whether rows are those that a case expects, in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from orbitmq.errors import SettingsError
from orbitmq.pipelines.cases.case_files import Row, as_json
from orbitmq.pipelines.suggestions import suggestion

_DIGITS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows as JSON, each as often as it is missing, or there without being expected."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected)


def difference(name: str, expected: Sequence[Row], actual: Sequence[Row]) -> Difference:
    """Compare the columns that the expected rows name; raises SettingsError if one is not there."""
    columns = list(expected[0] if expected else actual[0] if actual else ())
    for column in columns:
        if actual and column not in actual[0]:
            raise SettingsError(
                f"the rows of {name} have no column {column}", hint=suggestion(column, actual[0])
            )
    wanted = Counter(_canonical({column: row[column] for column in columns}) for row in expected)
    found = Counter(_canonical({column: row[column] for column in columns}) for row in actual)
    return Difference(
        tuple(sorted((wanted - found).elements())), tuple(sorted((found - wanted).elements()))
    )


def _canonical(value: Any) -> str:
    """One text for all spellings of a value: 80, 80.0 and 8e1 are the same number."""
    return as_json(_normal(value), gap=" ")


def _normal(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _normal(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return list(map(_normal, value))
    # Beyond that, a few characters would become very many.
    if isinstance(value, Decimal) and abs(value.adjusted()) <= _DIGITS_MAX:
        text = f"{value:f}"
        return Decimal(text.rstrip("0").rstrip(".") if "." in text else text)
    return value
