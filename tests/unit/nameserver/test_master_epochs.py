"""The largest epoch of each broker group, and its file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.errors import RegistrationRefusedError, SettingsError
from orbitmq.nameserver.master_epochs import MasterEpochs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "epochs.json"


async def loaded(path: Path) -> MasterEpochs:
    epochs = MasterEpochs(path)
    await epochs.load()
    return epochs


async def test_epochs_only_grow_and_survive_a_restart(path: Path) -> None:
    epochs = await loaded(path)
    for cluster, name, epoch in (("C", "a", 3), ("C", "a", 2), ("C", "b", 1), ("D", "a", 9)):
        await epochs.raise_to(cluster, name, epoch)

    for seen in (epochs, await loaded(path)):
        assert seen.all() == {"C": {"a": 3, "b": 1}, "D": {"a": 9}}
        assert (seen.of("C", "a"), seen.of("C", "c"), seen.of("E", "a")) == (3, 0, 0)


async def test_an_epoch_is_forgotten_also_on_disk(path: Path) -> None:
    epochs = await loaded(path)
    await epochs.raise_to("C", "a", 3)

    assert await epochs.forget("C", "a") == 3
    assert await epochs.forget("C", "a") == 0

    assert (await loaded(path)).all() == {}


async def test_changes_that_arrive_together_are_all_on_disk_and_noted(path: Path) -> None:
    epochs = await loaded(path)
    noted: list[int] = []
    epochs.on_change = lambda: noted.append(len(epochs.all()["C"]))

    await asyncio.gather(*(epochs.raise_to("C", f"b{number}", 1) for number in range(20)))

    assert len((await loaded(path)).all()["C"]) == 20
    # The first write has begun when the others arrive.
    assert noted == [1, 20]


async def test_a_caller_that_is_cancelled_takes_no_other_change_along(path: Path) -> None:
    epochs = await loaded(path)
    async with asyncio.TaskGroup() as callers:
        first = callers.create_task(epochs.raise_to("C", "a", 1))
        callers.create_task(epochs.raise_to("C", "b", 1))
        await asyncio.wait([first], timeout=0)
        first.cancel()

    assert (await loaded(path)).of("C", "b") == 1
    assert epochs.of("C", "b") == 1


async def test_the_number_of_groups_is_bounded(path: Path) -> None:
    epochs = MasterEpochs(path, groups_max=1)
    await epochs.raise_to("C", "a", 1)

    with pytest.raises(RegistrationRefusedError, match="epochsMax"):
        await epochs.raise_to("C", "b", 1)
    await epochs.raise_to("C", "a", 2)
    await epochs.forget("C", "a")
    await epochs.raise_to("C", "b", 1)

    assert epochs.all() == {"C": {"b": 1}}


async def test_an_epoch_that_cannot_be_written_is_refused_and_not_known(tmp_path: Path) -> None:
    (tmp_path / "in the way").touch()
    epochs = MasterEpochs(tmp_path / "in the way" / "epochs.json")

    with pytest.raises(RegistrationRefusedError, match="epochsPath"):
        await epochs.raise_to("C", "a", 1)

    assert epochs.of("C", "a") == 0


async def test_every_changed_byte_is_an_error_that_says_what_to_do(path: Path) -> None:
    await (await loaded(path)).raise_to("C", "a", 3)
    whole = path.read_bytes()

    damaged = [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(len(whole))]
    for content in (*damaged, b"", whole[:-1], whole + b"x"):
        path.write_bytes(content)
        with pytest.raises(SettingsError, match=r"is damaged.*restore it"):
            await loaded(path)


async def test_a_lost_file_whose_copy_is_there_is_not_an_empty_one(path: Path) -> None:
    epochs = await loaded(path)
    await epochs.raise_to("C", "a", 3)
    await epochs.raise_to("C", "a", 4)
    path.unlink()

    with pytest.raises(SettingsError, match="its copy is there"):
        await loaded(path)
