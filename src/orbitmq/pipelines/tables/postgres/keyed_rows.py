"""Rows that replace or delete others of their key, in the order of messages.

Beside its columns such a row says whether it deletes, and where it is: in which queue, at which
offset, and at which place among the changes of its message. Rows of one queue are in order; those of
several are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, LiteralString

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import DataType, StructType

from orbitmq.errors import SettingsError
from orbitmq.pipelines.file.sources import MESSAGE_COLUMN
from orbitmq.pipelines.plan import CHANGE_COLUMNS
from orbitmq.pipelines.suggestions import suggestion
from orbitmq.pipelines.tables.columns import quoted
from orbitmq.pipelines.tables.postgres.target import TargetRules

# In this order, before the columns of the table.
_DELETES: Final = "_orbitmq_deletes"
_QUEUE: Final = "_orbitmq_queue"
OFFSET: Final = "_orbitmq_offset"
_PLACE: Final = "_orbitmq_place"
# With a value that has their type in PostgreSQL.
PLACE: Final[Mapping[str, LiteralString]] = {
    _DELETES: "false",
    _QUEUE: "''::text",
    OFFSET: "0::bigint",
    _PLACE: "0",
}
_OF_MESSAGE: Final = ("topic", "brokerName", "queueId", "queueOffset")
_CHANGE_INDEX: Final = "changeIndex"
# A change may delete a row and add another.
_STEPS_MAX: Final = 2
_STEP: Final = "_orbitmq_step"
_CHANGE: Final = "_orbitmq_change"


def written_fields(rules: TargetRules, rows: StructType) -> StructType:
    """The columns that go into the table; raises SettingsError if rows lack what their order needs."""
    if not rules.key:
        return rows
    message = _type_of(MESSAGE_COLUMN, rules, rows)
    for name in _OF_MESSAGE:
        if not isinstance(message, StructType) or name not in message.names:
            raise SettingsError(
                f"{rules.sink}: column {MESSAGE_COLUMN} has no {name}, and rows of a key are in the "
                "order of their messages",
                hint=f"pass {MESSAGE_COLUMN} on as the source has it",
            )
    if not rules.applies_changes:
        return StructType([one for one in rows if one.name.lower() != MESSAGE_COLUMN])
    found = [_type_of(name, rules, rows) for name in CHANGE_COLUMNS]
    row = found[-1]
    if not isinstance(row, StructType) or found[-2] != row:
        raise SettingsError(
            f"{rules.sink}: columns before and after are not rows of the same columns",
            hint="pass them on as the source has them",
        )
    return row


def _type_of(name: str, rules: TargetRules, rows: StructType) -> DataType:
    for one in rows:
        if one.name.lower() == name:
            return one.dataType
    needs = "applies changes" if name != MESSAGE_COLUMN else "has a key"
    raise SettingsError(
        f"{rules.sink} {needs}, and what it reads has no column {name}",
        hint=suggestion(name, rows.names),
    )


def placed(rows: DataFrame, rules: TargetRules, columns: Sequence[str]) -> DataFrame:
    """What `PLACE` says of each row, and its columns; an update of the key deletes the old one."""
    message, change = functions.col(MESSAGE_COLUMN), functions.col(_CHANGE)
    has_index = _CHANGE_INDEX in rows.select(f"{MESSAGE_COLUMN}.*").columns
    index = message[_CHANGE_INDEX] if has_index else functions.lit(0)
    queue = functions.concat_ws(" ", *(message[name] for name in _OF_MESSAGE[:3]))
    steps = _steps_of_change(rules) if rules.applies_changes else [_step(columns)]
    return rows.select(
        functions.posexplode(functions.array_compact(functions.array(*steps))).alias(
            _STEP, _CHANGE
        ),
        queue.alias(_QUEUE),
        message["queueOffset"].alias(OFFSET),
        index.alias(_PLACE),
    ).select(
        change["deletes"].alias(_DELETES),
        _QUEUE,
        OFFSET,
        (functions.col(_PLACE) * _STEPS_MAX + functions.col(_STEP)).alias(_PLACE),
        *(change["row"][name].alias(name) for name in columns),
    )


def _step(columns: Sequence[str]) -> Column:
    row = functions.struct(*(functions.col(quoted(name)) for name in columns))
    return functions.struct(_flag("false").alias("deletes"), row.alias("row"))


def _steps_of_change(rules: TargetRules) -> list[Column]:
    """A deletion and an upsert, each of them null if it is not part of the change."""
    op, before, after = (functions.col(name) for name in CHANGE_COLUMNS)
    is_moved = _flag("false")
    for name in rules.key:
        is_moved |= before[name].isNotNull() & ~before[name].eqNullSafe(after[name])
    # Also of an `op` that is null: then there is a row to be refused, and none is left out.
    is_deletion = op.eqNullSafe("delete")
    deletes = is_deletion | (op.eqNullSafe("update") & is_moved)
    return [
        functions.when(
            deletes, functions.struct(_flag("true").alias("deletes"), before.alias("row"))
        ),
        functions.when(
            ~is_deletion, functions.struct(_flag("false").alias("deletes"), after.alias("row"))
        ),
    ]


def _flag(value: str) -> Column:
    return functions.expr(value)
