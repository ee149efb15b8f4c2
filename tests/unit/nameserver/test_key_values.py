"""Key-value configuration: kept in a file, answered from memory."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest

from orbitmq.errors import KeyValueError, SettingsError
from orbitmq.nameserver.key_values import KeyValueStore
from tests.leftovers import is_in


async def loaded(path: Path, keys_max: int = 100) -> KeyValueStore:
    key_values = KeyValueStore(path, keys_max=keys_max)
    await key_values.load()
    return key_values


async def test_a_key_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "kvConfig.json"
    before = await loaded(path)
    await before.put("N", "k", "v")
    await before.put("N", "gone", "x")
    await before.delete("N", "gone")

    after = await loaded(path)

    assert after.get("N", "k") == "v"
    assert after.namespace("N") == {"k": "v"}
    assert after.namespace("M") is None
    assert after.get("M", "k") is None


async def test_the_file_is_rocketmqs(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"

    await (await loaded(path)).put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")

    assert json.loads(path.read_bytes()) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"T": "broker-a:4"}}
    }


async def test_a_file_that_is_broken_stops_the_start_and_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(b'{"configTable":')

    with pytest.raises(SettingsError, match=r"is broken.*restore it"):
        await loaded(path)

    assert path.read_bytes() == b'{"configTable":'


async def test_a_file_that_lost_its_content_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_bytes(b"")

    with pytest.raises(SettingsError, match=r"kv.json is broken.*restore it from its .bak copy"):
        await KeyValueStore(path).load()


async def test_the_copy_is_loaded_if_the_file_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kv.json.bak").write_text('{"configTable":{"n":{"k":"v"}}}')
    store = KeyValueStore(tmp_path / "kv.json")

    await store.load()

    assert store.get("n", "k") == "v"
    assert "key values loaded from the copy" in caplog.text


async def test_a_long_listing_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = {"n": {f"k{number}": "v" * 5000 for number in range(300)}}
    (tmp_path / "kv.json").write_text(json.dumps({"configTable": table}))
    store = KeyValueStore(tmp_path / "kv.json")
    await store.load()

    with caplog.at_level(logging.INFO):
        store.log_all()

    assert len(caplog.messages) == 202
    assert max(map(len, caplog.messages)) < 1100
    assert caplog.messages[-1] == "further key values count=100"


async def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        await loaded(tmp_path)


async def test_a_change_that_cannot_be_written_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "kvConfig.json"
    key_values = await loaded(path)
    (tmp_path / "folder").write_text("a file where the folder should be")

    with pytest.raises(KeyValueError, match="nothing was changed"):
        await key_values.put("N", "k", "v")

    assert key_values.get("N", "k") is None


async def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    key_values = await loaded(path)

    await asyncio.gather(*(key_values.put("N", f"k{n}", str(n)) for n in range(20)))

    assert (await loaded(path)).namespace("N") == {f"k{n}": str(n) for n in range(20)}


async def test_keys_are_bounded(tmp_path: Path) -> None:
    key_values = await loaded(tmp_path / "kvConfig.json", keys_max=1)
    await key_values.put("N", "k", "1")

    with pytest.raises(KeyValueError, match="raise kvConfigMax"):
        await key_values.put("M", "l", "2")
    await key_values.put("N", "k", "3")

    assert key_values.get("N", "k") == "3"


async def test_bytes_are_bounded_so_that_the_file_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    key_values = KeyValueStore(path, bytes_max=100)
    await key_values.put("N", "k", "v" * 90)

    with pytest.raises(KeyValueError, match="raise kvConfigBytesMax"):
        await key_values.put("N", "l", "w" * 10)
    await key_values.put("N", "k", "v" * 10)
    await key_values.put("N", "l", "w" * 10)

    assert (await loaded(path)).namespace("N") == {"k": "v" * 10, "l": "w" * 10}


async def test_one_refused_change_does_not_harm_those_written_with_it(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    key_values = KeyValueStore(path, keys_max=5)

    outcomes = await asyncio.gather(
        *(key_values.put("N", f"k{n}", str(n)) for n in range(8)), return_exceptions=True
    )

    assert [isinstance(outcome, KeyValueError) for outcome in outcomes] == [False] * 5 + [True] * 3
    assert (await loaded(path)).namespace("N") == {f"k{n}": str(n) for n in range(5)}


async def test_changes_that_wait_share_one_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_values = await loaded(tmp_path / "kvConfig.json")
    syncs: list[int] = []
    sync = os.fsync

    def counted(descriptor: int) -> None:
        if is_in(tmp_path, descriptor):
            syncs.append(descriptor)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)

    await asyncio.gather(*(key_values.put("N", f"k{n}", str(n)) for n in range(100)))

    # At most two writes, each of the file, its copy and the folder: and never none.
    assert 2 <= len(syncs) <= 6


async def test_what_an_earlier_process_did_not_finish_writing_is_deleted_at_the_start(
    tmp_path: Path,
) -> None:
    leftover = tmp_path / ".kvConfig.json.abcd_123.tmp"
    leftover.touch()
    os.utime(leftover, (1, 1))

    await loaded(tmp_path / "kvConfig.json")

    assert not leftover.exists()


async def test_deleting_what_is_not_there_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"

    await (await loaded(path)).delete("N", "k")

    assert not path.exists()


async def test_the_listing_names_every_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key_values = await loaded(tmp_path / "kvConfig.json")
    await key_values.put("N", "k", "v")

    with caplog.at_level(logging.INFO):
        key_values.log_all()

    assert "key value namespace=N key=k value=v" in caplog.text
