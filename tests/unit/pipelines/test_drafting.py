"""A first file for a topic has the columns that its messages have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.pipelines.drafting import draft
from orbitmq.pipelines.file.pipeline_file import read_pipeline
from orbitmq.pipelines.plan import Decoding, TopicSource


def drafted(folder: Path, *bodies: object, topic: str = "orders") -> Decoding | None:
    """What the draft for a topic with these messages says of bodies; it is a valid file."""
    encoded = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in bodies]
    file = folder / "draft.yaml"
    file.write_text(draft("127.0.0.1:9876", topic, encoded))
    (source,) = read_pipeline(file).sources
    assert isinstance(source, TopicSource)
    assert source.topic == topic
    assert source.decoding is None or isinstance(source.decoding, Decoding)
    return source.decoding


def columns(folder: Path, *bodies: object) -> dict[str, str]:
    decoding = drafted(folder, *bodies)
    assert decoding is not None
    return {column.name: column.type for column in decoding.columns}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], "bigint"),
        ([1, 2.5], "double"),
        ([2**70], "decimal(38, 0)"),
        ([True, None], "boolean"),
        ([True, 1], "string"),
        (["a", "2026-01-01"], "string"),
        (["2026-01-01"], "date"),
        (["2026-01-01T10:00:00Z", "2026-01-01 10:00:00.5+01:00"], "timestamp"),
        ([[1], [2.5], []], "array<double>"),
        ([{"a": 1}, {"b c": "x"}], "struct<`a`: bigint, `b c`: string>"),
        ([{"a": 1}, [1]], "string"),
        ([None], "string"),
        ([{}], "string"),
    ],
)
def test_a_type_has_all_values(tmp_path: Path, values: list[object], expected: str) -> None:
    assert columns(tmp_path, *({"x": value} for value in values)) == {"x": expected}


def test_columns_of_all_messages_are_there_in_their_order(tmp_path: Path) -> None:
    found = columns(tmp_path, {"id": 1, "no": "x"}, {"id": 2, "a: b": 1}, b"not json")

    assert found == {"id": "bigint", "no": "string", "a: b": "bigint"}


@pytest.mark.parametrize(
    ("body", "form"), [(b"plain text", "text"), (b"\xff\x00", None), (b"[" * 5000, "text")]
)
def test_bodies_that_are_no_objects_stay_whole(
    tmp_path: Path, body: bytes, form: str | None
) -> None:
    decoding = drafted(tmp_path, body)

    assert (decoding and decoding.format) == form


def test_an_empty_topic_with_an_odd_name_has_a_file_too(tmp_path: Path) -> None:
    assert drafted(tmp_path, topic="9-lives%x") is None


def test_deep_objects_become_text_somewhere(tmp_path: Path) -> None:
    deep: object = 1
    for _ in range(50):
        deep = {"x": deep}

    assert columns(tmp_path, deep)["x"].count("struct") < 20


def test_fields_that_cannot_be_columns_are_left_out_and_named(tmp_path: Path) -> None:
    body = {"id": 1, "ID": 2, "message": "x", "": 3, "_orbitmq_x": 4}

    assert columns(tmp_path, body) == {"id": "bigint"}
    (note, *_) = (tmp_path / "draft.yaml").read_text().splitlines()
    assert note.endswith('Left out, for their names: "ID", "message", "", "_orbitmq_x".')
