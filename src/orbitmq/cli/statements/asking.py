"""Asks the cluster and Spark for the answer to one statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from orbitmq.cli.administering import administer, client_keywords
from orbitmq.clock import SystemClock
from orbitmq.errors import QueryError
from orbitmq.pipelines.queries.preparation import ANSWERED_HERE, prepare
from orbitmq.pipelines.queries.statements import Statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from orbitmq.pipelines.queries.execution import Answer


@dataclass(slots=True)
class Asking:
    """Where statements go, and how much of an answer is wanted."""

    namesrv: str | None
    # The Spark that runs queries; called for each.
    session: Callable[[], SparkSession]
    limit: int | None
    # Whether that Spark has ended meanwhile, so that another one shall run the query.
    is_gone: Callable[[], bool] = lambda: False
    _clock: SystemClock = field(default_factory=SystemClock)

    def answer(self, statement: Statement) -> tuple[Answer, float]:
        """The answer to a statement, and how many milliseconds it took with a warm Spark."""
        from orbitmq.pipelines.queries.execution import Answer, run, source_options

        answered_here = ANSWERED_HERE.get(statement.kind)
        if answered_here is not None:
            began_ms = self._clock.monotonic_ms()
            rows = administer(self.namesrv, lambda admin: answered_here(statement, admin))
            return Answer(rows), self._clock.monotonic_ms() - began_ms
        # Wrong names are found before Spark starts.
        began_ms = self._clock.monotonic_ms()
        query = administer(self.namesrv, lambda admin: prepare(statement, admin))
        prepared_ms = self._clock.monotonic_ms() - began_ms
        source = source_options(client_keywords(self.namesrv))
        spark = self.session()
        began_ms = self._clock.monotonic_ms()
        try:
            answer = run(query, spark, source, limit=self.limit)
        except QueryError:
            if not self.is_gone():
                raise
            answer = run(query, self.session(), source, limit=self.limit)
        for note in query.notes:
            warn(note)
        return answer, prepared_ms + self._clock.monotonic_ms() - began_ms


def warn(text: str) -> None:
    """Say on standard error what an answer leaves out."""
    typer.secho(f"note: {text}", fg=typer.colors.YELLOW, err=True)
