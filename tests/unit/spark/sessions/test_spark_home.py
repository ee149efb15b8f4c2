"""A Spark home without its zip file."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitmq.spark.sessions.spark_home import light_home


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    folder = tmp_path / "pyspark"
    for name in ("bin/spark-submit", "jars/spark.jar", "python/lib/pyspark.zip", "sql/types.py"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return folder


def test_it_has_the_parts_of_spark_but_not_the_zip_file(tmp_path: Path, installed: Path) -> None:
    home = light_home(installed, tmp_path / "cache")

    assert (home / "bin" / "spark-submit").exists()
    assert (home / "jars" / "spark.jar").exists()
    assert sorted(path.name for path in home.iterdir()) == ["bin", "jars"]


def test_it_is_made_once(tmp_path: Path, installed: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        homes = set(threads.map(lambda _: light_home(installed, tmp_path / "cache"), range(32)))

    assert list((tmp_path / "cache").iterdir()) == [*homes]


def test_another_installation_has_a_home_of_its_own(tmp_path: Path, installed: Path) -> None:
    other = tmp_path / "other"
    (other / "bin").mkdir(parents=True)

    assert light_home(installed, tmp_path / "cache") != light_home(other, tmp_path / "cache")


def test_an_unwritable_cache_is_an_error(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "cache").write_text("a file")

    with pytest.raises(FileExistsError):
        light_home(installed, tmp_path / "cache")
