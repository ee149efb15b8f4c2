"""Tests of the Spark package leave no clients running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.spark.sessions import reader_pool
from orbitmq.spark.writing import writers
from tests.leftovers import no_threads_since, threads


@pytest.fixture(scope="module", autouse=True)
def _clients_are_stopped() -> Iterator[None]:
    """Workers keep clients for their next task; tests stop them after each file."""
    before = threads("orbitmq-loop")
    yield
    writers.stop_clients()
    reader_pool.stop_all()
    no_threads_since(before, "orbitmq-loop")
