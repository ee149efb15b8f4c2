"""A Delta table in a folder, written without a JAR.

Spark's tasks write the files; the driver adds them in one commit of Delta's log, together with the
commit of the batch. Delta keeps a number for each application that writes a table, beyond all
checkpoints and clean-ups of its log. So what a table has of a sink is in numbers:

    PIPELINE/SINK                the batch
    PIPELINE/SINK#query-1, -2    Spark's id of the query, the halves of its 16 bytes
    PIPELINE/SINK#start-1, -2    the digest of where the batch starts; 0 if nothing is before it
    PIPELINE/SINK#end-1, -2      the digest of where it ends

Delta refuses a commit if another one since its snapshot changed such a number: of two drivers that
write one batch, one fails. The texts are in the commit as well, as `orbitmq`, for people.

Crash: files that no commit names are in no table; Delta's VACUUM deletes them.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from orbitmq.clock import SystemClock
from orbitmq.errors import TableError
from orbitmq.pipelines.plan import DeltaSink
from orbitmq.pipelines.tables.batches import Commit
from orbitmq.pipelines.tables.columns import check_fit, fitted, plain_columns
from orbitmq.pipelines.tables.delta_form import (
    partition_text,
    statistics_form,
    unfit_column,
    unfit_table,
)
from orbitmq.pipelines.tables.parquet_parts import LocalFolder, Part, PartWriting, write_parts
from orbitmq.protocol.requests.staged_writes import SourceRange

# Of two signed numbers, as Delta has them.
_HALVES: Final = struct.Struct(">2q")
_NOTHING: Final = bytes(_HALVES.size)
# Commits may be refused for what others change; the batch is then looked at anew.
_COMMITS_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class DeltaLake:
    """The table of a sink."""

    sink: DeltaSink

    def last_commit(self, sink: str) -> Commit | None:
        """The last batch of a sink that the table has; None if it has none."""
        with self._errors():
            table = self._open()
            return None if table is None else _last_commit(table, sink)

    def check(self, columns: StructType) -> None:
        """Raise TableError if rows with some columns cannot be written."""
        with self._errors():
            self._check(self._open(), columns)

    def write(self, rows: DataFrame, commit: Commit, after: Commit | None) -> None:
        """Add the rows of a batch; raises if the last commit is not `after` any more."""
        with self._errors():
            columns = self._prepared(rows.schema, after, commit.sink)
            parts = self._write_parts(rows, columns)
            for left in reversed(range(_COMMITS_MAX)):
                table = DeltaTable(self.sink.path)
                self._check_last(table, after, commit.sink)
                if _columns(table) != columns:
                    raise self._error("its columns were changed while the batch was written")
                try:
                    self._commit(table, columns, parts, commit)
                except CommitFailedError:
                    if left == 0:
                        raise
                else:
                    return

    def _prepared(self, batch: StructType, after: Commit | None, sink: str) -> StructType:
        """The columns of the table, once it has those of a batch."""
        table = self._open()
        added = self._check(table, batch)
        if table is None:
            # Without rows: deltalake lets two drivers make a table at once, with the rows of both.
            columns = plain_columns(batch)
            by = list(self._partition_columns(columns))
            schema = _delta_schema(columns)
            table = DeltaTable.create(self.sink.path, schema, mode="ignore", partition_by=by)
            self._check(table, batch)
        self._check_last(table, after, sink)
        if added:
            table.alter.add_columns(list(_delta_schema(StructType(list(added))).fields))
            table = DeltaTable(self.sink.path)
        return _columns(table)

    def _check(self, table: DeltaTable | None, batch: StructType) -> tuple[StructField, ...]:
        by = [name.lower() for name in self.sink.partition_by]
        problem = unfit_column(batch, by)
        added: tuple[StructField, ...] = ()
        if table is not None:
            given = [name.lower() for name in table.metadata().partition_columns]
            if given != by:
                named = ", ".join(given) or "nothing"
                problem = problem or f"the table is partitioned by {named}"
            problem = problem or unfit_table(table)
        if problem:
            raise self._error(problem)
        if table is not None:
            added = check_fit(
                _columns(table),
                batch,
                sink=self.sink.name,
                target=self.sink.target,
                adds_columns=self.sink.adds_columns,
            )
        return added

    def _write_parts(self, rows: DataFrame, columns: StructType) -> list[Part]:
        by = {name: columns[name] for name in self._partition_columns(columns)}
        in_files = StructType([one for one in columns if one.name not in by])
        writing = PartWriting(
            folder=LocalFolder(self.sink.path),
            form=to_arrow_schema(in_files, timezone="UTC"),
            statistics=statistics_form,
        )
        return write_parts(fitted(rows, StructType([*in_files, *by.values()])), writing)

    def _partition_columns(self, columns: StructType) -> tuple[str, ...]:
        spelling = {one.name.lower(): one.name for one in columns}
        return tuple(spelling[name.lower()] for name in self.sink.partition_by)

    def _commit(
        self, table: DeltaTable, columns: StructType, parts: Sequence[Part], commit: Commit
    ) -> None:
        by = self._partition_columns(columns)
        now_ms = SystemClock().now_ms()
        adds: list[AddAction | RemoveAction] = [
            AddAction(
                path=part.name,
                size=part.bytes,
                partition_values=dict(zip(by, map(partition_text, part.partition), strict=True)),
                modification_time=now_ms,
                data_change=True,
                stats=json.dumps(part.statistics),
            )
            for part in parts
        ]
        properties = CommitProperties(
            custom_metadata={"orbitmq": msgspec.to_builtins(commit)},
            app_transactions=_transactions(commit),
        )
        table.create_write_transaction(
            adds,
            "append",
            _delta_schema(columns),
            partition_by=list(by),
            commit_properties=properties,
        )

    def _check_last(self, table: DeltaTable, after: Commit | None, sink: str) -> None:
        if _last_commit(table, sink) != after:
            raise self._error("another query wrote the table while this one did")

    def _open(self) -> DeltaTable | None:
        return DeltaTable(self.sink.path) if DeltaTable.is_deltatable(self.sink.path) else None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError) as error:
            raise self._error(str(error)) from error

    def _error(self, problem: str) -> TableError:
        return TableError(self.sink.name, self.sink.target, problem)


def _transactions(commit: Commit) -> list[Transaction]:
    source = commit.source
    values = {
        "query": uuid.UUID(commit.query).bytes,
        "start": bytes.fromhex(source.start) or _NOTHING,
        "end": bytes.fromhex(source.end),
    }
    return [
        Transaction(commit.sink, commit.batch),
        *(
            Transaction(f"{commit.sink}#{name}-{half}", number)
            for name, value in values.items()
            for half, number in enumerate(_HALVES.unpack(value), 1)
        ),
    ]


def _last_commit(table: DeltaTable, sink: str) -> Commit | None:
    batch = table.transaction_version(sink)
    if batch is None:
        return None

    def value(name: str) -> bytes:
        halves = (table.transaction_version(f"{sink}#{name}-{half}") or 0 for half in (1, 2))
        return _HALVES.pack(*halves)

    start = value("start")
    return Commit(
        sink=sink,
        query=str(uuid.UUID(bytes=value("query"))),
        batch=batch,
        source=SourceRange(start="" if start == _NOTHING else start.hex(), end=value("end").hex()),
    )


def _columns(table: DeltaTable) -> StructType:
    return plain_columns(StructType.fromJson(json.loads(table.schema().to_json())))


def _delta_schema(columns: StructType) -> Schema:
    # Delta writes types down as Spark does.
    return Schema.from_json(columns.json())
