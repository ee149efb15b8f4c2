"""A slave's store takes its master's log byte by byte, in pieces that end anywhere."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import CopyError, StateError
from orbitmq.record.layout import BLANK_BYTES_MIN
from orbitmq.store.config import FlushMode
from orbitmq.store.message_store import MessageStore
from tests.unit.store.stores import message, open_store

_FILE_BYTES = 64 * 1024


def _written(root: Path, count: int, body: bytes = b"x" * 900) -> bytes:
    """Write messages to a store; returns its log from the first byte to its end."""
    with open_store(root, log_file_bytes=_FILE_BYTES) as store:
        for number in range(count):
            store.append(message(body + b"%d" % number))
        store.flush()
        return _log_of(store)


def _log_of(store: MessageStore) -> bytes:
    parts: list[bytes] = []
    at: int = store.log_start
    while at < store.log_end:
        size = min(_FILE_BYTES - at % _FILE_BYTES, store.log_end - at)
        part = store.parts.log.pread(at, size)
        assert part is not None
        parts.append(part)
        at += size
    return b"".join(parts)


def _copy(store: MessageStore, content: bytes) -> None:
    while content:
        room = store.copy.room()
        count = min(len(room), len(content))
        room[:count] = content[:count]
        store.copy.take(count)
        content = content[count:]


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(min_value=1, max_value=200_000), max_size=12))
def test_a_copy_is_equal_however_the_bytes_arrive(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    root = tmp_path_factory.mktemp("stores")
    content = _written(root / "master", 150)
    places = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})

    with open_store(root / "slave", log_file_bytes=_FILE_BYTES) as slave:
        for start, end in pairwise(places):
            _copy(slave, content[start:end])
            assert slave.log_end <= slave.copy.received == end
        slave.flush()

        assert _log_of(slave) == content
        assert slave.end_of("orders", 0) == 150


def test_the_log_ends_with_a_whole_record_while_the_next_arrives(tmp_path: Path) -> None:
    content = _written(tmp_path / "master", 2)
    first = len(content) // 2

    with open_store(tmp_path / "slave", log_file_bytes=_FILE_BYTES) as slave:
        _copy(slave, content[: first + 10])

        assert slave.log_end == first
        assert slave.copy.received == first + 10


def test_a_part_that_is_dropped_leaves_zero_bytes(tmp_path: Path) -> None:
    content = _written(tmp_path / "master", 2)
    first = len(content) // 2

    with open_store(tmp_path / "slave", log_file_bytes=_FILE_BYTES) as slave:
        _copy(slave, content[:-3])
        slave.copy.drop_part()
        file = slave.parts.log.files[-1]

        assert slave.copy.received == slave.log_end == first
        assert not any(file.view[first:])


def test_a_copy_resumes_after_a_restart(tmp_path: Path) -> None:
    content = _written(tmp_path / "master", 100)

    with open_store(tmp_path / "slave", log_file_bytes=_FILE_BYTES) as slave:
        _copy(slave, content[:40_000])
        resumed_at = slave.log_end
    with open_store(tmp_path / "slave", log_file_bytes=_FILE_BYTES) as slave:
        assert slave.copy.received == slave.log_end == resumed_at
        _copy(slave, content[resumed_at:])
        slave.flush()

        assert _log_of(slave) == content


def test_an_empty_log_may_begin_at_a_later_file(tmp_path: Path) -> None:
    content = _written(tmp_path / "master", 150)

    with open_store(tmp_path / "slave", log_file_bytes=_FILE_BYTES) as slave:
        slave.copy.begin(_FILE_BYTES)
        _copy(slave, content[_FILE_BYTES:])
        slave.flush()

        assert slave.log_start == _FILE_BYTES
        assert _log_of(slave) == content[_FILE_BYTES:]
        numbers = slave.start_of("orders", 0), slave.end_of("orders", 0)
    with open_store(tmp_path / "slave", log_file_bytes=_FILE_BYTES) as slave:
        assert (slave.start_of("orders", 0), slave.end_of("orders", 0)) == numbers
        assert numbers[0] > 0
        assert numbers[1] == 150


def test_a_log_with_files_begins_nowhere_else(tmp_path: Path) -> None:
    content = _written(tmp_path / "master", 1)

    with open_store(tmp_path / "slave", log_file_bytes=_FILE_BYTES) as slave:
        _copy(slave, content)
        with pytest.raises(CopyError, match="begins at 0 already"):
            slave.copy.begin(_FILE_BYTES)


def test_files_of_other_sizes_are_refused(tmp_path: Path) -> None:
    content = _written(tmp_path / "master", 150)

    with (
        open_store(tmp_path / "larger", log_file_bytes=2 * _FILE_BYTES) as larger,
        pytest.raises(CopyError, match="mappedFileSizeCommitLog"),
    ):
        _copy(larger, content)
    with (
        open_store(tmp_path / "other", log_file_bytes=_FILE_BYTES + 20) as other,
        pytest.raises(CopyError, match="mappedFileSizeCommitLog"),
    ):
        other.copy.begin(_FILE_BYTES)


@pytest.mark.parametrize("at", [4, 28, 100])
def test_bytes_that_are_no_log_are_refused_and_nothing_of_them_stays(
    tmp_path: Path, at: int
) -> None:
    content = bytearray(_written(tmp_path / "master", 3))
    broken = len(content) // 3 * 2 + at
    content[broken] ^= 0xFF

    with open_store(tmp_path / "slave", log_file_bytes=_FILE_BYTES) as slave:
        _copy(slave, bytes(content[: len(content) // 3]))
        with pytest.raises(CopyError, match="no record at offset"):
            _copy(slave, bytes(content[len(content) // 3 :]))
        slave.copy.drop_part()

        assert slave.log_end == len(content) // 3


def test_a_body_that_is_broken_at_the_master_is_copied_when_it_arrives_so_again(
    tmp_path: Path,
) -> None:
    content = bytearray(_written(tmp_path / "master", 3))
    content[len(content) // 3 + 100] ^= 0xFF

    with open_store(tmp_path / "slave", log_file_bytes=_FILE_BYTES) as slave:
        for _ in range(2):
            with pytest.raises(CopyError, match="checksum"):
                _copy(slave, bytes(content))
            slave.copy.drop_part()
        _copy(slave, bytes(content))

        assert slave.log_end == len(content)


def test_zero_bytes_are_refused(tmp_path: Path) -> None:
    with (
        open_store(tmp_path, log_file_bytes=_FILE_BYTES) as slave,
        pytest.raises(CopyError, match="only zero bytes"),
    ):
        _copy(slave, bytes(BLANK_BYTES_MIN))


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    slave = open_store(tmp_path, log_file_bytes=_FILE_BYTES)
    slave.close()

    with pytest.raises(StateError):
        slave.copy.room()


# --- what is visible ---------------------------------------------------------------------------


def test_a_limit_hides_what_is_above_it_until_it_is_raised(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        first = store.put(message())
        store.limit_visible(first.end)
        store.put(message())
        assert store.end_of("orders", 0) == 1
        assert store.end_of("orders", 0, committed=False) == 2

        store.limit_visible(store.log_end)

        assert store.end_of("orders", 0) == 2


def test_a_held_store_shows_what_it_showed_before(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        first = store.put(message())
        store.limit_visible(first.end)
        store.put(message())
    with open_store(tmp_path, held=True) as store:
        assert store.visible == first.end
        assert store.end_of("orders", 0) == 1
        assert store.append(message()).queue_offset == 2

        store.limit_visible(None)

        assert store.end_of("orders", 0) >= 2
    with open_store(tmp_path) as store:
        assert store.end_of("orders", 0) == 3


def test_slaves_may_copy_what_is_on_disk_or_all_under_async_flush(tmp_path: Path) -> None:
    grown: list[int] = []
    with open_store(tmp_path / "sync", flush_interval_ms=60_000) as store:
        store.on_growth(lambda: grown.append(store.settled))
        store.append(message())
        assert store.settled == 0
        store.put(message())

        assert store.settled == store.log_end
        assert grown[-1] == store.log_end
    grown.clear()
    with open_store(tmp_path / "async", flush_mode=FlushMode.ASYNC) as store:
        store.on_growth(lambda: grown.append(store.settled))
        store.append(message())
        assert store.settled == store.log_end
        store.publish()

        assert grown == [store.log_end]
