"""Looks into the database of a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.pipelines.tables.postgres.database import Database
from tests.postgres import Server

Query = Callable[[str], list[tuple[Any, ...]]]


@pytest.fixture
def query(database: Database, postgres: Server) -> Query:
    def ask(text: str) -> list[tuple[Any, ...]]:
        with postgres.connected(database.name, autocommit=True) as connection:
            done = connection.execute(text)
            return done.fetchall() if done.description else []

    return ask
