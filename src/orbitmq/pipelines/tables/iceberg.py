"""An Iceberg table of a catalog, written without a JAR.

Spark's tasks write the files; the driver appends them in one snapshot, whose summary has the commit
of the batch under `orbitmq.commit`. The commit is refused unless the table's last snapshot is still
the one that was looked at, so of two drivers that write one batch, one fails. Snapshots expire, so
the table's property `orbitmq.commit.PIPELINE/SINK` has the last commit, too; it counts once no
snapshot is left that has one: a table that was rolled back still has some.

Crash: files that no snapshot names are in no table; Iceberg's remove_orphan_files deletes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Final, cast

import msgspec
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
    ValidationException,
)
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from sqlalchemy.exc import SQLAlchemyError

from orbitmq.errors import TableError
from orbitmq.pipelines.plan import IcebergSink
from orbitmq.pipelines.tables.batches import Commit
from orbitmq.pipelines.tables.columns import check_fit, fitted, plain_columns
from orbitmq.pipelines.tables.parquet_parts import PartWriting, write_parts

_RECORD: Final = "orbitmq.commit"
# A commit is refused for whatever others append; the table is then looked at anew.
_COMMITS_MAX: Final = 10
_SIMPLE: Final = (
    StringType,
    IntegerType,
    LongType,
    DateType,
    BooleanType,
    FloatType,
    DoubleType,
    DecimalType,
    BinaryType,
    TimestampType,
    TimestampNTZType,
)
_ERRORS: Final = (
    CommitFailedException,
    msgspec.MsgspecError,
    NotInstalledError,
    OSError,
    RESTError,
    SQLAlchemyError,
    ValidationError,
    ValidationException,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class TableFolder:
    """Where the files of a table are, on whatever file system its catalog names."""

    location: str
    properties: Mapping[str, str]

    def create(self, name: str) -> IO[bytes]:
        """Begin a file that does not exist yet."""
        output = load_file_io(dict(self.properties), self.location).new_output(self.path(name))
        return cast("IO[bytes]", output.create(overwrite=False))

    def remove(self, name: str) -> None:
        """Remove what there is of a file."""
        load_file_io(dict(self.properties), self.location).delete(self.path(name))

    def path(self, name: str) -> str:
        """The whole name of a file."""
        return f"{self.location}/{name}"


@dataclass(frozen=True, slots=True)
class Iceberg:
    """The table of a sink."""

    sink: IcebergSink
    _catalogs: list[Catalog] = field(default_factory=list)

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
            table = self._prepared(rows.schema)
            self._check_last(table, after, commit.sink)
            columns = _columns(table)
            location = table.metadata.properties.get("write.data.path", f"{table.location()}/data")
            folder = TableFolder(location, table.io.properties)
            form = schema_to_pyarrow(table.schema())
            parts = write_parts(fitted(rows, columns), PartWriting(folder=folder, form=form))
            files = [folder.path(part.name) for part in parts]
            for left in reversed(range(_COMMITS_MAX)):
                try:
                    _append(table, files, commit)
                except CommitFailedException:
                    if left == 0:
                        raise
                else:
                    return
                table = self._catalog().load_table(self.sink.identifier)
                self._check_last(table, after, commit.sink)
                if _columns(table) != columns:
                    raise self._error("its columns were changed while the batch was written")

    def _prepared(self, batch: StructType) -> Table:
        """The table, with the columns of a batch."""
        table = self._open()
        added = self._check(table, batch)
        if table is not None:
            if added:
                with table.update_schema() as update:
                    update.union_by_name(to_arrow_schema(StructType(list(added)), timezone="UTC"))
            return table
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self.sink.identifier.rpartition(".")[0])
        form = to_arrow_schema(plain_columns(batch), timezone="UTC")
        try:
            return catalog.create_table(self.sink.identifier, form)
        except TableAlreadyExistsError as error:
            raise self._error("another program made it at the same time") from error

    def _check(self, table: Table | None, batch: StructType) -> tuple[StructField, ...]:
        problem = _unfit(batch)
        if table is not None and not problem:
            if not table.spec().is_unpartitioned():
                problem = "the table is partitioned"
            required = [one.name for one in table.schema().fields if one.required]
            if required:
                problem = f"column {required[0]} of the table is required"
        if problem:
            raise self._error(problem)
        if table is None:
            return ()
        return check_fit(
            _columns(table),
            batch,
            sink=self.sink.name,
            target=self.sink.target,
            adds_columns=self.sink.adds_columns,
        )

    def _check_last(self, table: Table, after: Commit | None, sink: str) -> None:
        if _last_commit(table, sink) != after:
            raise self._error("another query wrote the table while this one did")

    def _open(self) -> Table | None:
        try:
            return self._catalog().load_table(self.sink.identifier)
        except NoSuchTableError:
            return None

    def _catalog(self) -> Catalog:
        if not self._catalogs:
            self._catalogs.append(load_catalog(self.sink.catalog, **self.sink.properties))
        return self._catalogs[0]

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            raise self._error(str(error)) from error

    def _error(self, problem: str) -> TableError:
        return TableError(self.sink.name, self.sink.target, problem)


def _append(table: Table, files: Sequence[str], commit: Commit) -> None:
    # Only in this copy: a refused commit must not be repeated upon what another query has written.
    table.metadata.properties["commit.retry.num-retries"] = "0"
    record = msgspec.json.encode(commit).decode()
    with table.transaction() as transaction:
        transaction.set_properties({f"{_RECORD}.{commit.sink}": record})
        transaction.add_files(
            list(files), snapshot_properties={_RECORD: record}, check_duplicate_files=False
        )


def _last_commit(table: Table, sink: str) -> Commit | None:
    records = {
        snapshot.snapshot_id: snapshot.summary.additional_properties.get(_RECORD)
        for snapshot in table.snapshots()
        if snapshot.summary is not None
    }
    commits = {
        number: msgspec.json.decode(record, type=Commit)
        for number, record in records.items()
        if record is not None
    }
    found = {number: commit for number, commit in commits.items() if commit.sink == sink}
    snapshot = table.current_snapshot()
    while snapshot is not None and found:
        if snapshot.snapshot_id in found:
            return found[snapshot.snapshot_id]
        before = snapshot.parent_snapshot_id
        snapshot = None if before is None else table.snapshot_by_id(before)
    if found:
        # The table was rolled back behind all of them.
        return None
    record = table.metadata.properties.get(f"{_RECORD}.{sink}")
    return None if record is None else msgspec.json.decode(record, type=Commit)


def _columns(table: Table) -> StructType:
    form = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return plain_columns(from_arrow_schema(form, prefer_timestamp_ntz=True))


def _unfit(columns: StructType) -> str:
    """What of some columns Iceberg cannot hold; empty if it can hold all."""
    for column in columns:
        wrong = _unfit_type(column.dataType)
        if wrong is not None:
            return f"column {column.name}: a table cannot hold {wrong.simpleString()}"
    return ""


def _unfit_type(kind: DataType) -> DataType | None:
    parts: list[DataType] = []
    if isinstance(kind, StructType):
        parts = [one.dataType for one in kind]
    elif isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    elif type(kind) not in _SIMPLE:
        return kind
    return next((wrong for wrong in map(_unfit_type, parts) if wrong is not None), None)
