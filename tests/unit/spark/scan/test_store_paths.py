from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq.errors import SettingsError, StoreError
from orbitmq.spark.options.store_options import StoreOptions
from orbitmq.spark.scan.store_partitions import StoreLocation
from orbitmq.spark.scan.store_paths import broker_name_of, find_stores, topics_of_broker


def a_store(root: Path, name: str | None = None) -> Path:
    (root / "config").mkdir(parents=True)
    if name is not None:
        topics = {"orders": {}, f"rmq_sys_SYNC_BROKER_MEMBER_{name}": {"perm": 1}}
        (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    return root


def test_several_directories_are_found_in_order_and_once(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        a_store(tmp_path / f"broker-{name}" / "store")
    (tmp_path / "broker-d").write_text("a file")

    options = StoreOptions(path=f"file://{tmp_path}/broker-c/store,{tmp_path}/broker-*/store")

    assert find_stores(options) == [
        StoreLocation(str(tmp_path / f"broker-{name}" / "store"), f"broker-{name}")
        for name in ("c", "a", "b")
    ]


def test_a_store_records_the_name_of_its_broker(tmp_path: Path) -> None:
    assert broker_name_of(a_store(tmp_path / "x" / "store", "broker-7")) == "broker-7"


def test_a_broker_without_a_recorded_name_is_named_after_the_folder(tmp_path: Path) -> None:
    assert broker_name_of(a_store(tmp_path / "copy-of-a")) == "copy-of-a"
    assert broker_name_of(a_store(tmp_path / "broker-b" / "store")) == "broker-b"


def test_a_store_records_the_topics_of_its_broker(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    table = {"topicConfigTable": {"new": {"topicName": "new"}, "old": {"topicName": "old"}}}
    (tmp_path / "config" / "topics.json").write_text(json.dumps(table, indent=1))

    assert topics_of_broker(tmp_path) == {"new", "old"}
    assert topics_of_broker(tmp_path / "none") == frozenset()


def test_names_may_be_given(tmp_path: Path) -> None:
    for name in ("a", "b"):
        a_store(tmp_path / name)

    stores = find_stores(StoreOptions(path=str(tmp_path / "*"), broker_name="one, two"))

    assert [location.broker_name for location in stores] == ["one", "two"]


def test_too_few_names_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        a_store(tmp_path / name)

    with pytest.raises(SettingsError, match="1 names for 2 directories"):
        find_stores(StoreOptions(path=str(tmp_path / "*"), broker_name="one"))


def test_two_stores_of_one_broker_are_refused(tmp_path: Path) -> None:
    for name in ("master", "slave"):
        a_store(tmp_path / name, "broker-a")

    with pytest.raises(SettingsError, match="both belong to broker 'broker-a'"):
        find_stores(StoreOptions(path=str(tmp_path / "*")))


def test_a_pattern_without_a_match_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="matches no folder"):
        find_stores(StoreOptions(path=str(tmp_path / "none-*")))


def test_other_file_systems_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"hdfs://x/store is not in this machine.s .*mount it"):
        find_stores(StoreOptions(path="hdfs://x/store"))


def test_a_separate_log_needs_a_single_directory(tmp_path: Path) -> None:
    for name in ("a", "b"):
        a_store(tmp_path / name)

    with pytest.raises(SettingsError, match="storePathCommitLog is given for 2 directories"):
        find_stores(StoreOptions(path=str(tmp_path / "*"), log_path="/log"))
    stores = find_stores(StoreOptions(path=str(tmp_path / "a"), log_path="/log"))
    assert [location.log_path for location in stores] == ["/log"]


@pytest.mark.parametrize("name", ["broker[1]", "what?", "all*"])
def test_a_folder_may_have_wildcards_in_its_name(tmp_path: Path, name: str) -> None:
    a_store(tmp_path / name)

    (location,) = find_stores(StoreOptions(path=str(tmp_path / name)))

    assert location.root == str(tmp_path / name)


def test_an_impossible_path_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot be a path"):
        find_stores(StoreOptions(path="a\0b"))
