"""Which messages a replay sends, and what they become.

That is said by the SQL of `--where` and `--transform`. Both see one message at a time. A query that looks at several (a sum, a join, an order) would give
other rows when messages are sent in chunks, so it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession

from orbitmq.errors import SettingsError
from orbitmq.model.property_names import SHARDING_KEY
from orbitmq.pipelines.running.spark_errors import named
from orbitmq.spark.options.write_options import WriteOptions
from orbitmq.spark.writing.write_columns import write_columns

if TYPE_CHECKING:
    from orbitmq.pipelines.replaying.plan import Request
    from orbitmq.pipelines.replaying.sources import Source

MESSAGES: Final = "messages"
# What copies have of their messages, if nothing transforms them.
_KEPT: Final = ("body", "keys", "tags", "flag", "properties")
_QUEUE: Final = ("brokerName", "queueId")
_SHARDING_KEY: Final = "shardingKey"
# Nodes of a query that look at one message at a time, and the messages themselves.
_BY_MESSAGE: Final = {
    "Project",
    "Filter",
    "Generate",
    "SubqueryAlias",
    "View",
    "WithCTE",
    "CTERelationDef",
    "CTERelationRef",
}
_SOURCE: Final = "DataSourceV2Relation"
_IN_WORDS: Final = {
    "Aggregate": "GROUP BY, DISTINCT or an aggregate function",
    "Distinct": "DISTINCT",
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Offset": "OFFSET",
    "Sort": "ORDER BY",
    "Join": "a join",
    "Union": "UNION",
    "Window": "a window",
}


class Selection:
    """The SQL of one replay; tables that it makes are seen by no other session."""

    def __init__(self, spark: SparkSession, source: Source, request: Request) -> None:
        self.spark = spark.newSession()
        self.source = source
        self.request = request
        self._where = request.where
        self._transform = request.transform

    @property
    def reads_bodies(self) -> bool:
        """Whether bodies are needed to know which messages are sent."""
        # Too often rather than too rarely: this is also true of a text with that word, and of a
        # product. A star may stand for all columns.
        return "body" in self._where.lower() or "*" in self._where

    @property
    def transforms(self) -> bool:
        """Whether messages become other rows than themselves."""
        return bool(self._transform)

    def check(self, messages: DataFrame, options: WriteOptions) -> None:
        """Raise for SQL that cannot be used; `messages` is a read that has not begun."""
        if self._where:
            with named("--where"):
                matching = self.matching(messages)
            _check_by_message(matching, "--where")
            if not _analyzed(matching).deterministic():
                raise SettingsError(
                    "--where has another result each time that it is evaluated",
                    hint="leave out rand(), uuid() and their like",
                )
        shaped = self.shaped(messages)
        if self._transform:
            _check_by_message(shaped, "--transform")
        try:
            write_columns(shaped.schema, options)
        except SettingsError as error:
            raise SettingsError(f"--transform: {error}") from error

    def condition(self, messages: DataFrame) -> DataFrame:
        """The messages, with a column `is_sent`."""
        condition = f"coalesce(({self._where}\n), false)" if self._where else "true"
        return messages.selectExpr("*", f"{condition} AS is_sent")

    def matching(self, messages: DataFrame) -> DataFrame:
        """Those of the messages that are sent."""
        return messages.where(self._where) if self._where else messages

    def shaped(self, messages: DataFrame) -> DataFrame:
        """What messages become: rows of Spark's sink."""
        if not self._transform:
            return messages.selectExpr(*_KEPT, *self._place())
        messages.createOrReplaceTempView(MESSAGES)
        with named("--transform"):
            return self.spark.sql(self._transform)

    def _place(self) -> tuple[str, ...]:
        if self.source.has_queues:
            return _QUEUE
        return (f"properties['{SHARDING_KEY}'] AS {_SHARDING_KEY}",)


def order_of(columns: list[str]) -> str:
    """What is kept of the order of messages, for people, by the columns of the sink."""
    given = {name.lower() for name in columns}
    if {name.lower() for name in _QUEUE} <= given:
        return "messages of one queue stay in one queue, in their order"
    if _SHARDING_KEY.lower() in given:
        return "messages with the same sharding key go to one queue, in their order"
    return "none: the transformation gives neither brokerName and queueId nor a shardingKey"


def _check_by_message(frame: DataFrame, what: str) -> None:
    leaves: list[str] = []
    _check_node(_analyzed(frame), what, leaves)
    if _SOURCE not in leaves:
        raise SettingsError(
            f"{what} does not read the messages",
            hint="select from messages, as in SELECT * EXCEPT (body), "
            "upper(CAST(body AS STRING)) AS body FROM messages",
        )


def _check_node(node: Any, what: str, leaves: list[str]) -> None:
    # A node is Java's, which says how many children it has, and returns one by its number.
    name = node.getClass().getSimpleName()
    children = node.children()
    if not children.size():
        leaves.append(name)
    elif name not in _BY_MESSAGE:
        raise _not_by_message(what, _IN_WORDS.get(name, name))
    if name not in _BY_MESSAGE | {_SOURCE}:
        raise SettingsError(
            f"{what} reads something else than the messages", hint=f"there is one table, {MESSAGES}"
        )
    if node.subqueries().size():
        raise _not_by_message(what, "a query within the query")
    for number in range(children.size()):
        _check_node(children.apply(number), what, leaves)


def _not_by_message(what: str, construct: str) -> SettingsError:
    return SettingsError(
        f"{what} has {construct}, which looks at more than one message",
        hint="messages are replayed one by one; compute over many of them with a pipeline",
    )


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()
