"""What a pipeline consists of: sources, steps and sinks, as its file says.

Rows flow from sources through steps to sinks. Each has a name, which later ones use. A sink is one
streaming query with a checkpoint of its own, and so is the quarantine of a source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Format = Literal["json", "csv", "text"]
ChangeFormat = Literal["debezium", "canal"]
# What a change consists of, beside its time.
CHANGE_COLUMNS: Final = ("op", "before", "after")
TableFormat = Literal["parquet", "json", "csv", "orc", "delta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column that the file pins: its name, and its type as Spark's SQL has it."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """How the bodies of messages become columns."""

    format: Format
    columns: tuple[Column, ...]
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroDecoding:
    """How Avro bodies become columns: the fields of a record."""

    columns: tuple[Column, ...]
    # The text of the schema that rows shall have.
    schema: str
    # Whether bodies say by which schema they were written: Confluent's header.
    is_confluent: bool
    # Texts of writers' schemas by their ids, and where others are asked for.
    schemas: Mapping[int, str]
    registry: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufDecoding:
    """How Protobuf bodies become columns: the fields of a message."""

    columns: tuple[Column, ...]
    # A descriptor set, and the full name of a message in it.
    descriptors: bytes
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeDecoding:
    """How envelopes of change data capture become columns: what happened to which row."""

    format: ChangeFormat
    # The columns of the rows that change.
    row: tuple[Column, ...]
    # What numbers of Debezium count that are times, if schemas do not say it.
    timestamps: str

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that a change has."""
        fields = ", ".join(f"`{one.name.replace('`', '``')}`: {one.type}" for one in self.row)
        row = f"struct<{fields}>"
        return (
            Column(name="op", type="string"),
            Column(name="before", type=row),
            Column(name="after", type=row),
            Column(name="source_time", type="timestamp"),
        )


Decoded = Decoding | AvroDecoding | ProtobufDecoding | ChangeDecoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A condition that rows shall meet; others go into quarantine."""

    name: str
    condition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How long rows may come late, by a column of theirs."""

    column: str
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """A topic, as a stream. Without a decoding its rows are messages."""

    name: str
    topic: str
    namesrv: str
    start: str
    options: Mapping[str, str]
    decoding: Decoded | None
    expectations: tuple[Expectation, ...]
    watermark: Watermark | None

    @property
    def may_reject(self) -> bool:
        """Whether some of its rows may go into quarantine."""
        return self.decoding is not None or bool(self.expectations)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """A table of files, read as it is when the pipeline starts."""

    name: str
    # A path or URI, as below.
    path: str
    format: TableFormat
    columns: tuple[Column, ...]
    options: Mapping[str, str]


Source = TopicSource | TableSource


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    """A query over what was named before."""

    name: str
    sql: str
    reads: tuple[str, ...]
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonStep:
    """A function of a file: DataFrames in, a DataFrame out."""

    name: str
    file: Path
    function: str
    reads: tuple[str, ...]
    watermark: Watermark | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeduplicateStep:
    """Drops rows whose keys were there before, as long as the watermark remembers them."""

    name: str
    keys: tuple[str, ...]
    reads: tuple[str, ...]
    # It needs one of what it reads, and passes it on.
    watermark = None


Step = SqlStep | PythonStep | DeduplicateStep


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSink:
    """Files that grow with each batch."""

    name: str
    reads: str
    path: str
    partition_by: tuple[str, ...]

    @property
    def target(self) -> str:
        """Where its rows go, for people."""
        return f"files {self.path}"

    @property
    def guarantee(self) -> str:
        """How often each row gets there, for people."""
        return "each row once, for readers that honour Spark's log of the folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSink:
    """A Delta table that grows with each batch."""

    name: str
    reads: str
    path: str
    partition_by: tuple[str, ...]
    # Whether the table gets columns that rows have and it lacks.
    adds_columns: bool

    @property
    def target(self) -> str:
        """Where its rows go, for people."""
        return f"Delta table {self.path}"

    guarantee = "each row once"


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSink:
    """An Iceberg table that grows with each batch."""

    name: str
    reads: str
    catalog: str
    # The table in the catalog: NAMESPACE.TABLE.
    identifier: str
    # Those of the catalog, beside what PyIceberg's own configuration says of it.
    properties: Mapping[str, str]
    # Whether the table gets columns that rows have and it lacks.
    adds_columns: bool

    @property
    def target(self) -> str:
        """Where its rows go, for people."""
        return f"Iceberg table {self.catalog}.{self.identifier}"

    guarantee = "each row once"


@dataclass(frozen=True, slots=True, kw_only=True)
class JdbcSink:
    """A table of a PostgreSQL database."""

    name: str
    reads: str
    host: str
    port: int
    database: str
    # As libpq names them.
    sslmode: str
    sslrootcert: str
    # Empty for the first of the user's search path.
    schema: str
    table: str
    user: str
    # What has the password, so that it is in no plan; neither for a user without one.
    password_file: Path | None
    password_variable: str
    # Whether the table gets columns that rows have and it lacks.
    adds_columns: bool
    # How long a statement may take.
    statement_ms: int
    # Columns that tell rows apart, so that a row replaces that of its key; none if rows are added.
    key: tuple[str, ...]
    # Whether what it reads are changes of rows.
    applies_changes: bool

    @property
    def target(self) -> str:
        """Where its rows go, for people."""
        table = f"{self.schema}.{self.table}" if self.schema else self.table
        return f"table {table} of postgresql://{self.host}:{self.port}/{self.database}"

    guarantee = "each row once"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """A topic; each row becomes a message. Expressions are SQL over the columns of the row."""

    name: str
    reads: str
    topic: str
    namesrv: str
    body: str
    keys: str
    tags: str
    sharding_key: str
    is_exactly_once: bool
    options: Mapping[str, str]

    @property
    def target(self) -> str:
        """Where its rows go, for people."""
        return f"topic {self.topic}"

    @property
    def guarantee(self) -> str:
        """How often each row gets there, for people."""
        return "each row once" if self.is_exactly_once else "each row at least once"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSink:
    """Rows on the screen, for a look."""

    name: str
    reads: str
    rows: int
    target = "the console"
    guarantee = "each row at least once"


Sink = ParquetSink | DeltaSink | IcebergSink | JdbcSink | TopicSink | ConsoleSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A whole pipeline; names are unique, and used after they are defined."""

    name: str
    file: Path
    # Where checkpoints are, and quarantines unless they have a place of their own.
    state: str
    quarantine: str
    # How often a batch begins; 0 for one right after the other.
    interval_ms: int
    sources: tuple[Source, ...]
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
