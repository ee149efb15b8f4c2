"""Every page that shows Spark runs from its first block to its last, against a real cluster."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.docs.pages import SHOWN_ADDRESS, Block, blocks
from tests.spark.conftest import StartCluster

# Folders as pages name them, and where they are; the last is a broker's store.
PLACES = {
    "tables/": "tables/",
    "checkpoints/": "checkpoints/",
    "orbitmq-data/": "data/",
}
PAGES: dict[str, list[Block]] = defaultdict(list)
for _block in blocks():
    if _block.is_for_spark:
        PAGES[_block.page.name].append(_block)


@pytest.mark.usefixtures("patient_streams")
@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_runs(
    page: str, spark: SparkSession, start_cluster: StartCluster, tmp_path: Path
) -> None:
    topics = start_cluster(directory=tmp_path / "data")
    topics.send("orders", ["what some pages read"])
    # Blocks follow one another, as a reader runs them.
    names = {"__name__": "example"}

    for block in PAGES[page]:
        # Errors should point at the line of the page.
        source = "\n" * (block.line - 1) + block.code
        source = source.replace(SHOWN_ADDRESS, topics.cluster.namesrv)
        for shown, real in PLACES.items():
            source = source.replace(f'"{shown}', f'"{tmp_path}/{real}')
        exec(compile(source, str(block.page), "exec"), names)
    for query in spark.streams.active:
        query.stop()


def test_the_first_pages_are_among_them() -> None:
    assert PAGES.keys() >= {"README.md", "spark.md"}
