"""One audit: cuts the work, has Spark do it, and joins what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.pipelines.auditing.message_checks import check_messages
from orbitmq.pipelines.auditing.message_rows import Wanted
from orbitmq.pipelines.auditing.results import Audit, join
from orbitmq.pipelines.auditing.spark_tasks import examine_all
from orbitmq.pipelines.auditing.tasks import ItemOptions
from orbitmq.pipelines.auditing.work import RANGE_BYTES, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.pipelines.auditing.directories import BrokerDirectories


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """How to audit."""

    log_path: str = ""
    delay_levels: str | None = None
    index_slots: int | None = None
    range_bytes: int = RANGE_BYTES
    with_duplicates: bool = True
    sequence_property: str | None = None
    sequence_per: str | None = None


def audit(
    brokers: Sequence[BrokerDirectories],
    options: AuditOptions,
    session: Callable[[], SparkSession],
) -> Audit:
    """Audit store directories, which are only read; Spark is not started without a store."""
    work = plan(brokers, log_path=options.log_path, range_bytes=options.range_bytes)
    if not work.items:
        return Audit(stores=join(work.stores, []))
    spark = session()
    outcomes = examine_all(
        spark,
        work.items,
        ItemOptions(delay_levels=options.delay_levels, index_slots=options.index_slots),
    )
    result = Audit(stores=join(work.stores, outcomes))
    wanted = Wanted(
        with_keys=options.with_duplicates,
        sequence_property=options.sequence_property,
        sequence_per=options.sequence_per,
    )
    if wanted.with_keys or wanted.sequence_property is not None:
        names = {one.root: one.broker for one in work.stores if not (one.replica_of or one.error)}
        result.messages = check_messages(spark, work.items, names, wanted)
    return result
