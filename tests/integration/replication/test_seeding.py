"""Slaves that start with log files copied while the master runs."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orbitmq.cli.main import command_for
from orbitmq.errors import CopyError, SettingsError
from tests.integration.replication.group import FILE_BYTES, Group

BODY = bytes(range(256)) * 64
SIZES = ("mappedFileSizeConsumeQueue=20000", "maxHashSlotNum=100", "maxIndexNum=400")


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    async with Group(tmp_path) as group:
        yield group


async def seed(group: Group, *flags: str) -> dict[str, Any]:
    """Seed the folder of slave 1, beside the brokers."""
    words = ["broker", "seed", str(group.folder / "1"), "--master", "group-a", "--json"]
    words += ["-n", group.namesrv, *flags]
    for option in SIZES:
        words += ["--set", option]
    result = await asyncio.to_thread(CliRunner().invoke, command_for(words), words)
    if result.exception is not None:
        raise result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


async def fill(group: Group, files: int) -> None:
    """Send until the log has reached its file of this number."""
    while group.brokers[0].store.log_end < (files - 1) * FILE_BYTES + FILE_BYTES // 4:
        await group.send(BODY)


async def test_a_slave_seeded_under_load_copies_only_the_rest(group: Group) -> None:
    await group.start(0)
    await group.create_topic()
    await fill(group, 3)
    sending = asyncio.create_task(fill(group, 5))

    found = await seed(group, "--copy-from", str(group.folder / "0"))
    await sending
    slave = await group.start(1)
    shown = slave.store.visible
    await group.until_linked()
    await group.until_copied()

    assert found["start"] == 0
    assert found["end"] >= 2 * FILE_BYTES
    assert shown == found["end"]
    assert group.log_of(1) == group.log_of(0)
    pulled = await group.pull(1, offset=0)
    assert pulled.body == (await group.pull(0, offset=0)).body


async def test_a_half_copied_tail_is_cut(group: Group) -> None:
    await group.start(0)
    await group.create_topic()
    await fill(group, 2)
    folder = group.folder / "1" / "commitlog"
    shutil.copytree(group.folder / "0" / "commitlog", folder)
    names = sorted(path.name for path in folder.iterdir())
    for name in names[2:]:
        (folder / name).unlink()
    with (folder / names[1]).open("r+b") as file:
        # As if the copy had been interrupted within a record.
        file.truncate(3 * len(BODY) + 1000)

    found = await seed(group)
    await group.start(1)
    await group.until_linked()
    await group.until_copied()

    assert FILE_BYTES < found["end"] < FILE_BYTES + 3 * len(BODY) + 1000
    assert group.log_of(1) == group.log_of(0)


async def test_a_log_that_is_not_the_masters_is_refused(group: Group) -> None:
    await group.start(0)
    await group.create_topic()
    await group.send(BODY)
    other = group.folder / "other"
    shutil.copytree(group.folder / "0" / "commitlog", other / "commitlog")
    (first,) = sorted((other / "commitlog").iterdir())[:1]
    content = first.read_bytes()
    # The store time of the first record, which no checksum covers.
    first.write_bytes(content[:60] + bytes([content[60] ^ 1]) + content[61:])

    with pytest.raises(CopyError, match="differs from that of the master") as refused:
        await seed(group, "--copy-from", str(other))

    assert "check --master" in refused.value.hint


async def test_copied_files_stay_if_the_master_has_nothing(group: Group) -> None:
    await group.start(0)
    file = group.folder / "1" / "commitlog" / f"{0:020}"
    file.parent.mkdir(parents=True)
    file.write_bytes(BODY)

    with pytest.raises(CopyError, match="master's visible log ends at 0") as refused:
        await seed(group)

    assert refused.value.hint == "check --master: these may be files of another group"
    assert file.read_bytes() == BODY
    assert [path.name for path in (group.folder / "1").iterdir()] == ["commitlog"]


async def test_files_with_a_gap_and_stores_in_use_are_refused(group: Group) -> None:
    await group.start(0)
    await group.create_topic()
    await fill(group, 3)
    folder = group.folder / "1" / "commitlog"
    shutil.copytree(group.folder / "0" / "commitlog", folder)
    (folder / f"{FILE_BYTES:020}").unlink()

    with pytest.raises(CopyError, match=f"{FILE_BYTES:020} is missing"):
        await seed(group)
    (group.folder / "1" / "checkpoint").touch()
    with pytest.raises(CopyError, match="is a store already: it has checkpoint"):
        await seed(group)


async def test_an_id_that_another_slave_has_is_refused_with_a_free_one(group: Group) -> None:
    await group.pair()
    await group.create_topic()
    await group.send()

    with pytest.raises(
        SettingsError, match=f"broker at {group.address(1)} has the id 1"
    ) as refused:
        await seed(group)

    assert refused.value.hint == "choose another one: --id 2"


async def test_a_folder_to_copy_from_that_is_not_there_is_named(group: Group) -> None:
    await group.start(0)

    with pytest.raises(CopyError, match="nowhere is no folder"):
        await seed(group, "--copy-from", str(group.folder / "nowhere"))
