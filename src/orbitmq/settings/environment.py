"""Options from environment variables.

A variable that sets an option is ORBITMQ_ and its name, written as in files (ORBITMQ_listenPort) or
in upper snake case (ORBITMQ_LISTEN_PORT), or one that the option declares itself (NAMESRV_ADDR).
The first one that is not empty counts. Roles and tools share one environment, so an unknown
variable is no error.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from orbitmq.settings.option import upper_snake
from orbitmq.settings.option_table import Assignment, OptionTable, Origin
from orbitmq.settings.rocketmq_options import ROCKETMQ_OPTIONS, RocketMQOption

PREFIX: Final = "ORBITMQ_"


def variables_of(name: str) -> tuple[str, ...]:
    """List the variables that set an option, in order of precedence."""
    return PREFIX + name, PREFIX + upper_snake(name)


def read_environment(
    environment: Mapping[str, str], table: OptionTable, *, leave_alone: Iterable[str]
) -> tuple[list[Assignment], list[str]]:
    """Return what the environment sets, and warnings about unknown variables."""
    known: set[str] = set()
    assignments: list[Assignment] = []
    for option in table.options.values():
        variables = (*variables_of(option.name), *option.environment)
        known.update(variables)
        assignments += _first_set(option.name, variables, environment)
    for name in leave_alone:
        known.update((name, *variables_of(name)))
    warnings: list[str] = []
    for variable in _other_variables(environment, known):
        foreign = _rocketmq_options_by_variable().get(variable)
        if foreign is None:
            warnings.append(_warning(variable, table))
        elif foreign.harmless is not None or table.role in foreign.roles:
            assignments += _first_set(foreign.name, (variable,), environment)
    return assignments, warnings


def _first_set(
    name: str, variables: Iterable[str], environment: Mapping[str, str]
) -> list[Assignment]:
    """Return the first variable that is not empty, as a list of at most one."""
    for variable in variables:
        text = environment.get(variable, "")
        if text:
            place = f"environment {variable}"
            return [
                Assignment(
                    name=name, text=text, origin=Origin.ENVIRONMENT, source=place, where=place
                )
            ]
    return []


def _other_variables(environment: Mapping[str, str], known: Collection[str]) -> Iterator[str]:
    for variable, text in sorted(environment.items()):
        if variable.startswith(PREFIX) and text and variable not in known:
            yield variable


def _warning(variable: str, table: OptionTable) -> str:
    nearest = table.nearest(variable.removeprefix(PREFIX))
    advice = f"; did you mean {variables_of(nearest)[1]}?" if nearest else ""
    return f"environment {variable} sets no known option{advice}"


@functools.cache
def _rocketmq_options_by_variable() -> dict[str, RocketMQOption]:
    return {
        variable: row for row in ROCKETMQ_OPTIONS.values() for variable in variables_of(row.name)
    }
