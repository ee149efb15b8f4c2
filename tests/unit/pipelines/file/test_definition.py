"""A Python file defines a pipeline by the rules of a YAML file, with functions as steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orbitmq.errors import PipelineFileError
from orbitmq.pipelines.file.pipeline_file import read_pipeline
from orbitmq.pipelines.file.python_files import load
from orbitmq.pipelines.plan import Pipeline, PythonStep

Read = Callable[[str], Pipeline]

IN_YAML = """\
name: shop
namesrv: 127.0.0.1:9876
interval: 10 seconds
sources:
  orders:
    topic: orders
    decode: json
    columns: {id: bigint, price: "decimal(8, 2)", placed: timestamp}
    expect: {has_a_price: price > 0}
    watermark: {column: placed, delay: 10 minutes}
    options: {maxOffsetsPerTrigger: 1000}
  limits: {table: limits, columns: {id: bigint}}
steps:
  known: {sql: SELECT orders.* FROM orders JOIN limits USING (id)}
  large: {python: "shop.py:large", from: [known, limits]}
  alerts: {python: "shop.py:alerts", from: [large]}
sinks:
  table: {from: large, parquet: tables/large, partition_by: [id]}
  alerts: {from: alerts, topic: alerts, keys: id}
"""
IN_PYTHON = """\
from __future__ import annotations

from dataclasses import dataclass

from orbitmq.pipelines import define

shop = define("shop", namesrv="127.0.0.1:9876", interval="10 seconds")
shop.source(
    "orders",
    topic="orders",
    decode="json",
    columns={"id": "bigint", "price": "decimal(8, 2)", "placed": "timestamp"},
    expect={"has_a_price": "price > 0"},
    watermark={"column": "placed", "delay": "10 minutes"},
    options={"maxOffsetsPerTrigger": 1000},
)
shop.source("limits", table="limits", columns={"id": "bigint"})
shop.sql("known", "SELECT orders.* FROM orders JOIN limits USING (id)")

@dataclass
class Limit:
    price: int = 100

@shop.step
def large(known, limits):
    return known.where(f"price > {Limit().price}")

shop.sink("table", reads="large", parquet="tables/large", partition_by=["id"])

@shop.sink(topic="alerts", keys="id")
def alerts(large):
    return large.select("id")
"""


@pytest.fixture
def read(tmp_path: Path) -> Read:
    file = tmp_path / "shop.py"

    def read(text: str) -> Pipeline:
        file.write_text(text)
        return read_pipeline(file)

    return read


def test_both_kinds_of_file_say_the_same(read: Read, tmp_path: Path) -> None:
    in_python = read(IN_PYTHON)
    (tmp_path / "shop.yaml").write_text(IN_YAML)

    in_yaml = read_pipeline(tmp_path / "shop.yaml")

    assert replace(in_python, file=in_yaml.file) == in_yaml


def test_a_function_stays_what_it_is(read: Read, tmp_path: Path) -> None:
    _, step, _ = read(IN_PYTHON).steps
    assert isinstance(step, PythonStep)

    module = load(tmp_path / "shop.py")

    assert module.large.__name__ == step.function == "large"
    assert module.Limit().price == 100


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'decode="json"',
            'decode_as="json"',
            r"shop\.py:8:1: .*no field 'decode_as' .*mean decode\?",
        ),
        ("JOIN limits", "JOIN limit", r"shop\.py:18:1: step known reads 'limit'.*mean limits\?"),
        ("def large(known", "def large(knwn", r"shop\.py:24:1: step large reads 'knwn'.*known\?"),
        ('reads="large"', 'reads="lrge"', r"shop\.py:28:1: sink table reads 'lrge'.*large\?"),
        ('sql("known"', 'sql("large"', r"large is defined twice among the steps: in line 18, and"),
        ('["id"]', "object()", r"line 28: a value cannot be <object"),
        ("shop = define(", "shop = make(", r"shop\.py:7: NameError: .*'make'"),
        ("class Limit:", "class Limit", r"shop\.py:21: SyntaxError: "),
    ],
)
def test_a_mistake_is_named_with_its_line(read: Read, old: str, new: str, message: str) -> None:
    with pytest.raises(PipelineFileError, match=message):
        read(IN_PYTHON.replace(old, new, 1))


def test_a_file_defines_one_pipeline(read: Read) -> None:
    twice_named = IN_PYTHON.replace("shop = define(", "other = shop = define(")
    assert [sink.name for sink in read(twice_named).sinks] == ["table", "alerts"]
    with pytest.raises(PipelineFileError, match=r"shop\.py defines 0 pipelines, not one"):
        read("import sys\n")
    with pytest.raises(PipelineFileError, match=r"shop\.py defines 2 pipelines, not one"):
        read(IN_PYTHON + 'other = define("other")\n')


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match=r"shop\.py cannot be read: "):
        read_pipeline(tmp_path / "shop.py")


def test_the_file_of_the_page_is_right(read: Read) -> None:
    page = (Path(__file__).parents[4] / "docs" / "pipelines.md").read_text()

    pipeline = read(page.partition("```python\n")[2].partition("```")[0])

    assert [sink.name for sink in pipeline.sinks] == ["alerts", "table"]
