"""How directories of an audit are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import SettingsError
from orbitmq.pipelines.auditing.directories import BrokerDirectories, parse_directories


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    for name in ("a", "b"):
        (tmp_path / name / "store").mkdir(parents=True)
    return str(tmp_path / "a" / "store"), str(tmp_path / "b" / "store")


def test_a_directory_is_a_broker_of_its_folders_name(folders: tuple[str, str]) -> None:
    a, b = folders

    assert parse_directories([a, b]) == [
        BrokerDirectories("a", (a,)),
        BrokerDirectories("b", (b,)),
    ]


def test_replicas_follow_after_a_comma(folders: tuple[str, str]) -> None:
    a, b = folders

    assert parse_directories([f"{a},{b}"]) == [BrokerDirectories("a", (a, b))]
    assert parse_directories([f"orders={a},{b}"]) == [BrokerDirectories("orders", (a, b))]


def test_a_folder_may_have_such_a_name(tmp_path: Path) -> None:
    odd = tmp_path / "x=1,2"
    odd.mkdir()

    assert parse_directories([str(odd)]) == [BrokerDirectories("x=1,2", (str(odd),))]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{a}", "{a}"], "is given 2 times"),
        (["x={a}", "x={b}"], "belong to broker 'x'"),
        (["{a},"], "names no directory"),
        (["{a}/none"], "is not a folder"),
    ],
)
def test_mistakes_are_named(folders: tuple[str, str], words: list[str], message: str) -> None:
    a, b = folders

    with pytest.raises(SettingsError, match=message):
        parse_directories([word.format(a=a, b=b) for word in words])
