"""Damaged tables of a broker: no message is lost, and what else is lost is logged."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.table_damaging import TABLES, DamagedTables, TableDamage


@pytest.fixture
async def tables(tmp_path: Path) -> DamagedTables:
    tables = DamagedTables(tmp_path, seed=1)
    await tables.write()
    return tables


async def test_a_damaged_table_is_restored_or_named(tables: DamagedTables) -> None:
    cases = tables.cases()

    for damage in random.Random(1).sample(cases, 12):
        await tables.run(damage)

    assert len(cases) > 250


async def test_the_newest_topic_is_recovered_if_only_the_older_copy_is_left(
    tables: DamagedTables,
) -> None:
    outcome = await tables.run(TableDamage("killed", "topics.json", "halved", ""))

    assert outcome == "served all, logged"


@pytest.mark.parametrize("table", TABLES)
async def test_a_broker_does_not_start_without_a_table_that_is_damaged_with_its_copy(
    tables: DamagedTables, table: str
) -> None:
    outcome = await tables.run(TableDamage("stopped", table, "emptied", "emptied"))

    assert outcome == "refused, by name"


async def test_a_flipped_bit_changes_nothing_in_silence(tables: DamagedTables) -> None:
    for table in TABLES:
        for _ in range(3):
            await tables.run(TableDamage("killed", table, "bit flipped", ""))
