"""What is read of a stream's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.spark.writing import stream_checkpoint
from orbitmq.spark.writing.stream_checkpoint import StreamCheckpoint, checkpoint_location


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a checkpoint"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"a5a45027-7bd7"}')
    for batch in range(3):
        (folder / "offsets" / str(batch)).write_text(f"v1\n{batch}")
    return folder


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_a_checkpoint_tells_its_query_and_where_batches_start_and_end(
    folder: Path, prefix: str
) -> None:
    text = str(folder)
    checkpoint = StreamCheckpoint(prefix + (text.replace(" ", "%20") if prefix else text))

    ranges = [checkpoint.source_range("a5a45027-7bd7", batch) for batch in range(3)]

    assert checkpoint.query() == "a5a45027-7bd7"
    first, second, third = (each for each in ranges if each is not None)
    assert first.start == ""
    assert (second.start, third.start) == (first.end, second.end)
    assert len({first.end, second.end, third.end}) == 3


def test_an_unreadable_checkpoint_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for location in (str(tmp_path), "nosuch://host/folder"):
        checkpoint = StreamCheckpoint(location)
        assert checkpoint.query() is None
        assert checkpoint.source_range("a5a45027-7bd7", 1) is None

    warnings = [each.getMessage() for each in caplog.records]
    assert len(warnings) == 2
    assert f"checkpoint={tmp_path}" in warnings[0]
    stream_checkpoint._warned.clear()


def test_the_checkpoint_of_another_query_is_not_taken_for_its_own(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert StreamCheckpoint(str(folder)).source_range("another", 1) is None

    assert "it is the checkpoint of query a5a45027-7bd7" in caplog.text
    stream_checkpoint._warned.clear()


@pytest.mark.parametrize(
    ("own", "folder", "name", "location"),
    [
        ("/own", "/all", "name", "/own"),
        ("", "/all/", "name", "/all/name"),
        ("", "/all", "", ""),
        ("", None, "name", ""),
    ],
)
def test_a_stream_has_its_own_checkpoint_or_one_in_the_sessions_folder(
    own: str, folder: str | None, name: str, location: str
) -> None:
    assert checkpoint_location(own, folder, name) == location
