"""Up to where ends have marks: believed only of the log that it was saved for."""

from __future__ import annotations

from pathlib import Path

from orbitmq.broker.transactions.half_messages import mark
from orbitmq.broker.transactions.marked_ends import FILE_NAME, MarkedEnds
from orbitmq.model.names import HALF_DONE_TOPIC
from orbitmq.store.files.slot_file import SlotFile, block_layout
from orbitmq.store.message_store import MessageStore
from orbitmq.store.opening.parts import OWN_FOLDER
from tests.unit.store.stores import message, open_store


def ends_of(store: MessageStore) -> MarkedEnds:
    return MarkedEnds(store, store.parts.root / OWN_FOLDER)


def saved(store: MessageStore) -> int:
    """Save the end of the log; returns it."""
    ends = ends_of(store)
    ends.load()
    position = store.log_end
    ends.save(position, store.end_of(HALF_DONE_TOPIC, 0))
    return position


def fill(store: MessageStore, *, body: bytes = b"body", count: int = 20) -> None:
    for _ in range(count):
        store.put(message(body))


def test_what_was_saved_is_loaded_again_however_the_log_has_grown(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store)
        position = saved(store)
        fill(store, count=200)

    with open_store(tmp_path) as store:
        assert ends_of(store).load() == position


def test_an_offset_at_the_border_of_two_files_is_loaded_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        file_bytes = store.parts.log.file_bytes
        offsets = []
        while store.log_end <= file_bytes:
            fill(store, count=1)
            offsets.append(saved(store))
            assert ends_of(store).load() == offsets[-1]

        assert offsets[-2] < file_bytes < offsets[-1]


def test_nothing_is_saved_of_an_empty_log(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        saved(store)

        assert not (tmp_path / OWN_FOLDER / FILE_NAME).exists()
        assert ends_of(store).load() == 0


def test_a_log_that_was_cut_is_not_the_one_it_was_saved_for(tmp_path: Path) -> None:
    with open_store(tmp_path / "whole") as store:
        fill(store)
        saved(store)
    content = (tmp_path / "whole" / OWN_FOLDER / FILE_NAME).read_bytes()

    with open_store(tmp_path / "cut") as store:
        (tmp_path / "cut" / OWN_FOLDER / FILE_NAME).write_bytes(content)
        fill(store, count=10)
        assert ends_of(store).load() == 0

        fill(store, body=b"other", count=30)
        assert ends_of(store).load() == 0


def test_a_log_that_has_lost_marks_is_not_the_one_it_was_saved_for(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.put(mark(7, now_ms=1, host=store.store_host))
        fill(store)
        ends = ends_of(store)
        ends.load()

        ends.save(store.log_end, 2)

        assert ends_of(store).load() == 0
        ends.save(store.log_end, 1)
        assert ends_of(store).load() == store.log_end


def test_the_file_of_a_newer_version_is_replaced(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store)
        newer = SlotFile(tmp_path / OWN_FOLDER / FILE_NAME, [block_layout("qqqI")])
        newer.write((2, store.log_end, 0, 0))
        newer.close()

        assert ends_of(store).load() == 0
        assert saved(store) == ends_of(store).load()


def test_a_file_that_cannot_be_read_is_done_without(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        fill(store)
        (tmp_path / OWN_FOLDER / FILE_NAME).mkdir()

        saved(store)

        assert ends_of(store).load() == 0
