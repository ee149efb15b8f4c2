"""What tests of Spark's parts leave behind: nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from orbitmq.spark import producers, reader_pool


@pytest.fixture(scope="module", autouse=True)
def _clients_are_stopped() -> Iterator[None]:
    """Workers keep clients for their next task; here the next file of tests finds none."""
    yield
    producers.stop_all()
    reader_pool.stop_all()
    left = [each.name for each in threading.enumerate() if each.name == "orbitmq-loop"]
    assert not left, "a client of this file was not stopped"
