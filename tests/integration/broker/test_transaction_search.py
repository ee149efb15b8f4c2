"""The search for commits without a mark: how much of the log a start reads for it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from orbitmq.broker.transactions.marked_ends import FILE_NAME
from orbitmq.clock import ManualClock
from orbitmq.model.names import HALF_DONE_TOPIC
from orbitmq.store.log.draft import Draft
from orbitmq.store.opening.parts import OWN_FOLDER
from tests.integration.broker.conftest import Peer, Site, crash_image, running
from tests.integration.broker.test_transactions import COMMIT, Prepared, end, prepare, put

BEFORE = 50
AFTER = 3


def file_of(folder: Path) -> Path:
    return folder / "store" / OWN_FOLDER / FILE_NAME


async def save(site: Site, *, after_bytes: int = 0) -> None:
    transactions = site.broker.parts.transactions
    transactions._searched_bytes = after_bytes
    await transactions.save()


async def left_open(tmp_path: Path, clock: ManualClock) -> tuple[Path, list[Prepared]]:
    """A killed broker's store: old open halves, a long log, saved progress, a little more log."""
    image = tmp_path / "image"
    async with running(tmp_path, clock) as site:
        peer = await site.connect()
        await peer.make_topic("T")
        prepared = [await prepare(peer, b"%d" % n, unique_id=f"A{n}") for n in range(3)]
        for _ in range(BEFORE):
            await peer.send("T", b"before")
        assert (await end(peer, prepared[2], COMMIT)).code == 0
        await save(site)
        for _ in range(AFTER):
            await peer.send("T", b"after")
        crash_image(site, image)
    return image, prepared


def committed_without_mark(prepared: Prepared) -> Draft:
    return Draft(
        topic="T",
        body=b"committed",
        properties=b"UNIQ_KEY\x01%s\x02" % prepared.transaction_id.encode(),
        system_flag=COMMIT,
        prepared_offset=prepared.physical_offset,
    )


def searched(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [int(each) for each in re.findall(r"recovered open.* searched=(\d+)", caplog.text)]


async def open_ids(peer: Peer, prepared: list[Prepared]) -> list[int]:
    """Those that can be committed."""
    return [n for n, each in enumerate(prepared) if (await end(peer, each, COMMIT)).code == 0]


async def test_a_start_searches_only_what_was_written_after_the_saved_position(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    image, prepared = await left_open(tmp_path, clock)
    put(image, committed_without_mark(prepared[1]))

    async with running(image, clock) as site:
        peer = await site.connect()

        assert searched(caplog) == [AFTER + 1]
        assert await open_ids(peer, prepared) == [0]
        bodies = [m.body for m in await peer.read("T", BEFORE)]
        assert bodies.count(b"committed") == bodies.count(b"0") == bodies.count(b"2") == 1
        assert bodies.count(b"1") == 0


def flip(path: Path) -> None:
    path.write_bytes(bytes(byte ^ 0xFF for byte in path.read_bytes()))


@pytest.mark.parametrize("harm", [Path.unlink, flip], ids=["lost", "damaged"])
async def test_without_the_saved_position_all_since_the_oldest_half_is_searched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: Callable[[Path], None]
) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    image, prepared = await left_open(tmp_path, clock)
    put(image, committed_without_mark(prepared[1]))
    harm(file_of(image))

    async with running(image, clock) as site:
        assert searched(caplog) == [BEFORE + 1 + AFTER + 1]
        assert await open_ids(await site.connect(), prepared) == [0]


async def test_all_is_searched_if_a_mark_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    image, _ = await left_open(tmp_path, clock)
    put(image, Draft(topic=HALF_DONE_TOPIC, body=b"nonsense"))

    async with running(image, clock):
        assert searched(caplog) == [BEFORE + 1 + AFTER]


async def test_the_position_is_saved_once_much_was_written_and_only_for_open_transactions(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, ManualClock()) as site:
        peer = await site.connect()
        await peer.make_topic("T")
        await peer.send("T", b"message")
        await save(site)
        assert not file_of(tmp_path).exists()

        prepared = await prepare(peer)
        await save(site, after_bytes=100_000)
        assert not file_of(tmp_path).exists()

        await peer.send("T", b"x" * 100_000)
        await save(site, after_bytes=100_000)
        first = file_of(tmp_path).read_bytes()
        await peer.send("T", b"message")
        await save(site, after_bytes=100_000)
        assert file_of(tmp_path).read_bytes() == first

        await end(peer, prepared, COMMIT)
        await save(site)
        assert file_of(tmp_path).read_bytes() == first
