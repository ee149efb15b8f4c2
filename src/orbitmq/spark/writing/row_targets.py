"""Decides where rows go: the topic of each, and the queue if it matters.

A row with a broker name and a queue id goes to that queue, one with a sharding key to the queue
that Java's producers choose for it, any other to any queue. A queue that the topic does not have
is replaced by one that it has, always the same, so that rows from one queue of another topic stay
together and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.client.core.sending.queue_selectors import queue_by_hash
from orbitmq.errors import OrbitError
from orbitmq.model.names import is_retry_topic
from orbitmq.spark.writing.row_errors import RowRefused

if TYPE_CHECKING:
    import numpy.typing as npt

    from orbitmq.model.queues import MessageQueue
    from orbitmq.spark.writing.write_columns import WriteColumns

QueuesOf = Callable[[str], Sequence["MessageQueue"]]


@dataclass(frozen=True, slots=True)
class RowTarget:
    """Where some rows go."""

    topic: str
    # None for any queue.
    queue: MessageQueue | None = None


@dataclass(frozen=True, slots=True)
class BatchTargets:
    """The targets of the rows of a batch."""

    targets: Sequence[RowTarget]
    # The index of each row's target; None if all rows have the first.
    of_rows: npt.NDArray[np.int64] | None = None


class RowRouter:
    """Finds the targets of the rows of one task."""

    def __init__(
        self,
        columns: WriteColumns,
        *,
        topic: str,
        queues_of: QueuesOf,
        check_topic: Callable[[str], None],
        replaces_missing: bool = True,
    ) -> None:
        """Route rows with these columns.

        Args:
            columns: the columns of the rows.
            topic: the topic of all rows; empty if a column has it.
            queues_of: returns the writable queues of a topic.
            check_topic: raises for a topic that cannot be sent to.
            replaces_missing: whether to replace a queue that a topic does not have.
        """
        self._topic = topic
        self._queues_of = queues_of
        self._check_topic = check_topic
        self._replaces_missing = replaces_missing
        self._by_column = "queueId" in columns
        self._by_key = "shardingKey" in columns
        self._checked: set[str] = set()

    def targets_of(self, rows: pa.RecordBatch) -> BatchTargets:
        """Find where each row goes; raises RowRefused for one without a possible target."""
        topics, topic_of_rows = self._topics(rows)
        found = self._choices(rows)
        if found is None:
            return BatchTargets([RowTarget(topic) for topic in topics], topic_of_rows)
        choices, choice_of_rows = found
        if topic_of_rows is None:
            topic_of_rows = np.zeros(len(rows), np.int64)
        pairs, first_rows, of_rows = np.unique(
            topic_of_rows * len(choices) + choice_of_rows, return_index=True, return_inverse=True
        )
        queues: dict[str, Sequence[MessageQueue]] = {}
        targets: list[RowTarget] = []
        for pair, row in zip(pairs.tolist(), first_rows.tolist(), strict=True):
            topic = topics[pair // len(choices)]
            if topic not in queues:
                queues[topic] = self._queues(topic, row)
            targets.append(self._target(topic, choices[pair % len(choices)], queues[topic], row))
        # Rows with different keys may go to the same queue.
        distinct = list(dict.fromkeys(targets))
        if len(distinct) < len(targets):
            renumbered = {target: number for number, target in enumerate(distinct)}
            of_rows = np.array([renumbered[target] for target in targets])[of_rows]
        return BatchTargets(distinct, of_rows if len(distinct) > 1 else None)

    def _queues(self, topic: str, row: int) -> Sequence[MessageQueue]:
        try:
            return self._queues_of(topic)
        except OrbitError as error:
            raise RowRefused(row, str(error)) from error

    def _topics(self, rows: pa.RecordBatch) -> tuple[list[str], npt.NDArray[np.int64] | None]:
        if self._topic:
            self._check(self._topic, 0)
            return [self._topic], None
        column = rows["topic"]
        if column.null_count:
            raise RowRefused(
                pc.index(column.is_null(), True).as_py(),
                "its topic is null",
                hint="the option topic sets it for all rows",
            )
        numbered = column.dictionary_encode()
        topics = _texts(numbered.dictionary, "topic", numbered.indices)
        for number, topic in enumerate(topics):
            self._check(topic, pc.index(numbered.indices, number).as_py())
        if len(topics) == 1:
            return topics, None
        return topics, numbered.indices.to_numpy().astype(np.int64)

    def _check(self, topic: str, row: int) -> None:
        if topic in self._checked:
            return
        if is_retry_topic(topic):
            raise RowRefused(
                row,
                f"its topic {topic!r} is the retry topic of a group, which only brokers write to",
                hint="send to the original topic",
            )
        try:
            self._check_topic(topic)
        except OrbitError as error:
            raise RowRefused(row, str(error)) from error
        self._checked.add(topic)

    def _choices(
        self, rows: pa.RecordBatch
    ) -> tuple[list[str | tuple[str, int] | None], npt.NDArray[np.int64]] | None:
        """The distinct choices of rows: a queue, a sharding key or none; and each row's index."""
        has_queue = has_key = None
        if self._by_column:
            has_queue = pc.and_(rows["queueId"].is_valid(), rows["brokerName"].is_valid())
            has_queue = has_queue.to_numpy(zero_copy_only=False)
        if self._by_key:
            has_key = pc.greater(pc.binary_length(rows["shardingKey"].fill_null("")), 0)
            has_key = has_key.to_numpy(zero_copy_only=False)
        nothing = np.zeros(len(rows), np.bool_)
        has_queue = nothing if has_queue is None else has_queue
        has_key = nothing if has_key is None else has_key & ~has_queue
        if not (has_queue | has_key).any():
            return None
        choices: list[str | tuple[str, int] | None] = [None]
        choice_of_rows = np.zeros(len(rows), np.int64)
        if has_key.any():
            numbered = rows["shardingKey"].filter(pa.array(has_key)).dictionary_encode()
            choice_of_rows[has_key] = numbered.indices.to_numpy() + len(choices)
            choices += _texts(numbered.dictionary, "shardingKey", numbered.indices, has_key)
        if has_queue.any():
            chosen = pa.array(has_queue)
            brokers = rows["brokerName"].filter(chosen).dictionary_encode()
            names = _texts(brokers.dictionary, "brokerName", brokers.indices, has_queue)
            ids = rows["queueId"].filter(chosen).to_numpy().astype(np.int64)
            pairs, of_rows = np.unique(
                np.stack([brokers.indices.to_numpy(), ids]), axis=1, return_inverse=True
            )
            choice_of_rows[has_queue] = of_rows + len(choices)
            choices += [(names[broker], queue_id) for broker, queue_id in pairs.T.tolist()]
        return choices, choice_of_rows

    def _target(
        self,
        topic: str,
        choice: str | tuple[str, int] | None,
        queues: Sequence[MessageQueue],
        row: int,
    ) -> RowTarget:
        if choice is None:
            return RowTarget(topic)
        if isinstance(choice, str):
            return RowTarget(topic, queue_by_hash(queues, choice))
        broker_name, queue_id = choice
        for queue in queues:
            if queue.broker_name == broker_name and queue.queue_id == queue_id:
                return RowTarget(topic, queue)
        if not self._replaces_missing:
            known = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues[:20])
            raise RowRefused(
                row,
                f"topic {topic!r} has no writable queue {broker_name}:{queue_id}; it has {known}",
                hint="name one of these, or use missingQueues=replace",
            )
        return RowTarget(topic, queue_by_hash(queues, f"{broker_name}:{queue_id}"))


def _texts(
    distinct: pa.Array,
    column: str,
    indices: pa.Array,
    chosen: npt.NDArray[np.bool_] | None = None,
) -> list[str]:
    """The distinct values of a column; raises RowRefused for one that is not UTF-8.

    Args:
        distinct: the values.
        column: the name of the column.
        indices: the index of each row's value.
        chosen: which rows of the batch these are; None for all.
    """
    try:
        texts: list[str] = distinct.to_pylist()
    except UnicodeDecodeError:
        octets = distinct.cast(pa.binary()).to_pylist()
        number = next(number for number, each in enumerate(octets) if not _is_utf8(each))
        row = int(pc.index(indices, number).as_py())
        raise RowRefused(
            row if chosen is None else int(np.flatnonzero(chosen)[row]),
            f"its {column} {octets[number]!r:.100} is not UTF-8",
            hint=f"convert it to text, or leave the column {column} out",
        ) from None
    return texts


def _is_utf8(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True
