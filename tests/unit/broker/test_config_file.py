"""A file of the config folder: read with its copy, changed as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq import java_json
from orbitmq.broker.config_file import ConfigFile
from orbitmq.clock import settle
from orbitmq.errors import ConfigFileError, OrbitError
from tests.crash.damaging import logged_warnings


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    size: int = 0


class Table(msgspec.Struct, frozen=True, kw_only=True):
    entries: dict[str, Entry] = {}
    offsets: dict[int, int] = {}


def put(name: str, size: int = 0) -> Callable[[Table], Table]:
    def step(table: Table) -> Table:
        return msgspec.structs.replace(table, entries=table.entries | {name: Entry(size=size)})

    return step


async def loaded(path: Path) -> ConfigFile[Table]:
    file = ConfigFile(path, Table())
    await file.load()
    return file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "table.json"


async def test_a_change_survives_a_restart(path: Path) -> None:
    await (await loaded(path)).change(put("a", 3))

    assert (await loaded(path)).document == Table(entries={"a": Entry(size=3)})


async def test_without_a_file_the_document_is_the_given_one(path: Path) -> None:
    assert (await loaded(path)).document == Table()
    assert not path.exists()


async def test_integer_keys_are_written_as_java_writes_them(path: Path) -> None:
    await (await loaded(path)).change(lambda _: Table(offsets={0: 12, 1: 9}))

    assert path.read_bytes().startswith(b'{"entries":{},"offsets":{0:12,1:9},"checksum":"')


async def test_a_changed_file_is_used_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await (await loaded(path)).change(put("a", 3))
    path.write_bytes(path.read_bytes().replace(b'"size":3', b'"size":7'))

    with caplog.at_level(logging.WARNING):
        edited = await loaded(path)
        first_warnings = caplog.text
        assert edited.document == Table(entries={"a": Entry(size=7)})
        caplog.clear()
        await edited.change(put("b"))
        await loaded(path)

    assert f"does not match its checksum file={path}" in first_warnings
    assert not caplog.text


@pytest.mark.parametrize("rest", [b"", b"\n", b" \r\n"])
async def test_a_checksum_is_no_member_of_a_later_release(path: Path, rest: bytes) -> None:
    file = await loaded(path)
    await file.change(put("a"))
    path.write_bytes(path.read_bytes() + rest)
    await (await loaded(path)).change(put("b"))

    assert path.read_bytes().count(b"checksum") == 1


@pytest.mark.parametrize("sort_keys", [False, True])
async def test_a_file_that_an_editor_laid_out_anew_is_used_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture, *, sort_keys: bool
) -> None:
    await (await loaded(path)).change(put("a"))
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=2, sort_keys=sort_keys))

    with caplog.at_level(logging.WARNING):
        await (await loaded(path)).change(put("b"))

    assert "does not match its checksum" in caplog.text
    assert path.read_bytes().count(b"checksum") == 1


@settings(max_examples=50, deadline=None)
@given(st.integers(0), st.integers(0, 7))
def test_a_flipped_bit_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("config") / "table.json"

    async def flip_and_load() -> ConfigFile[Table]:
        await (await loaded(path)).change(put("orders", 3))
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= 1 << bit
        path.write_bytes(content)
        return await loaded(path)

    with contextlib.suppress(ConfigFileError), logged_warnings() as logged:
        flipped = asyncio.run(flip_and_load())
        assert logged.lines or flipped.document == Table(entries={"orders": Entry(size=3)})


async def test_a_change_is_seen_only_after_it_is_on_disk(path: Path) -> None:
    file = await loaded(path)
    changing = asyncio.create_task(file.change(put("a")))
    await settle(1)

    assert file.document == Table()
    await changing
    assert "a" in file.document.entries


async def test_changes_during_a_write_share_the_next_one(path: Path) -> None:
    file = await loaded(path)
    await file.change(put("first"))
    documents = []

    def noting(name: str) -> Callable[[Table], Table]:
        def step(table: Table) -> Table:
            documents.append(file.document)
            return put(name)(table)

        return step

    await asyncio.gather(*(file.change(noting(f"n{number}")) for number in range(50)))

    assert len(file.document.entries) == 51
    # All but the first saw the same document: they were made in one round.
    assert len({len(document.entries) for document in documents}) <= 2
    assert (await loaded(path)).document == file.document


async def test_a_refused_change_does_not_affect_others(path: Path) -> None:
    file = await loaded(path)

    def refuse(_: Table) -> Table:
        raise OrbitError("not like this")

    outcomes = await asyncio.gather(
        file.change(put("a")), file.change(refuse), file.change(put("b")), return_exceptions=True
    )

    assert [type(outcome) for outcome in outcomes] == [type(None), OrbitError, type(None)]
    assert set(file.document.entries) == {"a", "b"}


async def test_an_empty_change_writes_nothing(path: Path) -> None:
    await (await loaded(path)).change(lambda table: table)

    assert not path.exists()


async def test_a_failed_write_changes_nothing(path: Path) -> None:
    file = await loaded(path)
    path.parent.write_text("a file where the folder should be")

    with pytest.raises(ConfigFileError, match="nothing was changed"):
        await file.change(put("a"))
    path.parent.unlink()
    await file.change(put("b"))

    assert set(file.document.entries) == {"b"}


async def test_a_cancelled_change_does_not_affect_others(path: Path) -> None:
    file = await loaded(path)
    first = asyncio.create_task(file.change(put("first")))
    await settle(1)
    waiting = asyncio.create_task(file.change(put("waiting")))
    last = asyncio.create_task(file.change(put("last")))
    await settle(1)

    first.cancel()
    waiting.cancel()
    await last
    await file.settled()

    assert set(file.document.entries) == {"first", "last"}
    assert (await loaded(path)).document == file.document


async def test_a_damaged_file_is_replaced_by_its_copy(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = await loaded(path)
    await file.change(put("a"))
    await file.change(put("b"))
    path.write_bytes(b'{"entries":{"a":')

    with caplog.at_level(logging.WARNING):
        after = await loaded(path)

    assert set(after.document.entries) == {"a"}
    assert "config file restored from its copy" in caplog.text
    assert path.with_name("table.json.damaged").read_bytes() == b'{"entries":{"a":'
    assert set(json.loads(path.read_bytes())["entries"]) == {"a"}
    assert set(json.loads(path.with_name("table.json.bak").read_bytes())["entries"]) == {"a"}


async def test_a_missing_file_is_replaced_by_its_copy(path: Path) -> None:
    path.parent.mkdir()
    path.with_name("table.json.bak").write_bytes(b'{"entries":{"a":{"size":1}}}')

    assert set((await loaded(path)).document.entries) == {"a"}


@pytest.mark.parametrize("damage", [b"", b"\0" * 64, b"null", b"[]", b'{"entries":5}', b"{"])
async def test_damaged_files_stop_the_start_and_stay(path: Path, damage: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(damage)
    path.with_name("table.json.bak").write_bytes(b"{")

    with pytest.raises(ConfigFileError, match=r"table\.json: .*table\.json\.bak: .*move these"):
        await loaded(path)

    assert path.read_bytes() == damage


async def test_a_file_that_cannot_be_read_stops_the_start(path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(ConfigFileError, match="cannot read"):
        await loaded(path)


async def test_members_of_a_later_release_survive_a_change(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(
        b'{"entries":{"a":{"size":1,"later":[1]},"b":{"later":2}},"offsets":{0:1},"more":{"x":1}}'
    )
    file = await loaded(path)

    await file.change(lambda table: msgspec.structs.replace(table, entries={"a": Entry(size=2)}))

    assert path.read_bytes().startswith(
        b'{"entries":{"a":{"size":2,"later":[1]}},"offsets":{0:1},"more":{"x":1},"checksum":"'
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@settings(max_examples=20, deadline=None)
@given(
    more=st.dictionaries(
        st.text(max_size=5).filter(lambda name: name not in ("entries", "offsets")), json_values
    )
)
def test_any_unknown_member_survives(
    tmp_path_factory: pytest.TempPathFactory, more: dict[str, object]
) -> None:
    path = tmp_path_factory.mktemp("config") / "table.json"
    path.write_bytes(java_json.encode(more | {"offsets": {1: 2}}))

    async def rewrite() -> None:
        await (await loaded(path)).change(put("a"))

    asyncio.run(rewrite())

    kept = {name: value for name, value in more.items() if value is not None}
    seen = java_json.decode(path.read_bytes(), dict)
    expected = java_json.decode(java_json.encode(kept), dict)
    assert {name: seen[name] for name in expected} == expected
    assert seen["offsets"] == {"1": 2}


async def test_a_listener_sees_the_document_before_and_after(path: Path) -> None:
    file = await loaded(path)
    told = []
    file.on_change = lambda before, after: told.append((len(before.entries), len(after.entries)))

    await file.change(put("a"))
    await file.change(lambda table: table)

    assert told == [(0, 1)]


async def test_a_change_that_starts_repeat_waits_in_memory_for_room_on_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = await loaded(path)
    monkeypatch.setattr("tempfile.mkstemp", _no_room)

    await file.complete(put("a", 3))

    assert "table not saved until the disk has room" in caplog.text
    assert str(path) in caplog.text
    assert file.document.entries == {"a": Entry(size=3)}
    with pytest.raises(ConfigFileError, match="No space left"):
        await file.save()
    with pytest.raises(ConfigFileError, match="No space left"):
        await file.change(put("b"))
    assert file.document.entries == {"a": Entry(size=3)}

    monkeypatch.undo()
    await file.save()
    assert (await loaded(path)).document == file.document
    written = path.stat().st_mtime_ns
    await file.save()
    assert path.stat().st_mtime_ns == written


async def test_a_copy_is_used_though_the_disk_has_no_room_to_restore_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = await loaded(path)
    await file.change(put("a"))
    await file.change(put("b"))
    path.unlink()
    monkeypatch.setattr("tempfile.mkstemp", _no_room)

    file = await loaded(path)

    assert file.document.entries == {"a": Entry()}
    monkeypatch.undo()
    await file.change(put("c"))
    assert (await loaded(path)).document.entries == {"a": Entry(), "c": Entry()}


def _no_room(**_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
