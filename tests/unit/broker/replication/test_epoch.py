"""The epochs of a store: which one it is at, and where each began."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.replication.config import BrokerRole
from orbitmq.broker.replication.epoch import ChangedRole, EpochFile, Role
from orbitmq.errors import StoreDamagedError, StoreError
from orbitmq.model.queues import PhysicalOffset


async def loaded(root: Path) -> EpochFile:
    file = EpochFile(root)
    await file.load()
    return file


async def begin(file: EpochFile, epoch: int, offset: int) -> None:
    await file.begin(epoch, PhysicalOffset(offset))


async def test_a_store_without_the_file_is_at_epoch_0(tmp_path: Path) -> None:
    file = await loaded(tmp_path)

    assert (file.epoch, file.began_at) == (0, {})
    assert list(tmp_path.iterdir()) == []


async def test_an_epoch_and_its_start_survive_a_restart(tmp_path: Path) -> None:
    file = await loaded(tmp_path)
    await begin(file, 1, 100)
    await begin(file, 4, 100)
    await begin(file, 7, 250)

    for seen in (file, await loaded(tmp_path)):
        assert (seen.epoch, seen.began_at) == (7, {1: 100, 4: 100, 7: 250})


async def test_epochs_of_a_part_of_the_log_that_was_cut_are_forgotten(tmp_path: Path) -> None:
    file = await loaded(tmp_path)
    for epoch, offset in ((1, 100), (2, 200), (3, 300)):
        await begin(file, epoch, offset)

    await begin(file, 5, 200)

    assert (await loaded(tmp_path)).began_at == {1: 100, 2: 200, 5: 200}


async def test_a_promotion_to_the_configured_role_is_remembered_until_the_next_start(
    tmp_path: Path,
) -> None:
    file = await loaded(tmp_path)
    master = Role(0, BrokerRole.SYNC_MASTER)
    promoted = ChangedRole(master, configured=master, since_ms=1234)
    await file.begin(1, PhysicalOffset(100), role=promoted)

    restarted = await loaded(tmp_path)
    await restarted.take_role(None)

    assert restarted.role(master) == master
    assert restarted.promoted_ms == 1234
    assert (await loaded(tmp_path)).promoted_ms is None


async def test_an_epoch_that_is_not_larger_does_not_begin(tmp_path: Path) -> None:
    file = await loaded(tmp_path)
    await begin(file, 3, 100)
    content = (tmp_path / "orbitmq" / "epoch").read_bytes()

    for epoch, offset in ((2, 200), (3, 200), (2**63, 200), (4, -1)):
        with pytest.raises(StoreError, match=f"epoch {epoch} cannot begin at offset {offset}"):
            await begin(file, epoch, offset)
    await begin(file, 3, 100)

    assert (tmp_path / "orbitmq" / "epoch").read_bytes() == content


async def test_the_number_of_epochs_is_bounded_and_the_oldest_make_room(tmp_path: Path) -> None:
    file = EpochFile(tmp_path, epochs_max=2)
    for epoch, offset in ((1, 100), (2, 200), (3, 300)):
        await begin(file, epoch, offset)

    found = await loaded(tmp_path)

    assert (found.epoch, found.began_at) == (3, {2: 200, 3: 300})


async def test_every_changed_byte_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    await begin(await loaded(tmp_path), 3, 100)
    path = tmp_path / "orbitmq" / "epoch"
    whole = path.read_bytes()

    damaged = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for content in (*damaged, b"", whole[:-1], whole + b"x"):
        path.write_bytes(content)
        with pytest.raises(StoreDamagedError, match="forget-epoch"):
            await loaded(tmp_path)


async def test_a_lost_file_whose_copy_is_there_is_not_epoch_0(tmp_path: Path) -> None:
    file = await loaded(tmp_path)
    await begin(file, 3, 100)
    await begin(file, 4, 200)
    (tmp_path / "orbitmq" / "epoch").unlink()

    with pytest.raises(StoreDamagedError, match="its copy is there"):
        await loaded(tmp_path)


async def test_an_epoch_that_cannot_be_written_does_not_begin(tmp_path: Path) -> None:
    file = await loaded(tmp_path)
    (tmp_path / "orbitmq").write_text("in the way")

    with pytest.raises(StoreError, match="epoch"):
        await begin(file, 1, 100)

    assert file.epoch == 0
