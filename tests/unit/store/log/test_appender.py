"""Appending, in both forms: offsets, times, checks, and what is left when it fails.

Every test runs with the plain form and, where it is built, with the compiled one.
"""

from __future__ import annotations

import contextlib
import random
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orbitmq.errors import MessageError, OrbitError, StateError
from orbitmq.model.queues import QueueOffset
from orbitmq.record.batch import BatchedMessage, encode_batch
from orbitmq.record.codec import encode_record
from orbitmq.record.decode import StoredMessage, decode_record
from orbitmq.record.hosts import encode_host
from orbitmq.record.layout import SystemFlag
from orbitmq.record.message_id import encode_message_id
from orbitmq.store.log.appender import Appended, AppendedBatch, Appender, Entry
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.obstacles import UPKEEP, Obstacles, unwritable

FILE_BYTES = 64 * 1024
HOST_V4, HOST_V6 = encode_host("10.0.0.1", 10911), encode_host("2001:db8::7", 10911)
NOW_MS = 1_700_000_000_000


def _forms() -> dict[str, type[Appender]]:
    forms = {"plain": Appender}
    with contextlib.suppress(ImportError):
        forms["compiled"] = import_module("orbitmq.store.log.compiled.appender_cython").Appender
    return forms


FORMS = _forms()


class Bench(NamedTuple):
    """An appender and what it works on."""

    appender: Appender
    log: CommitLog
    obstacles: Obstacles
    growths: list[int]

    def append(self, **changes: Any) -> Appended:
        return self.appender.append(*_arguments(**changes))

    def message(self, place: Appended) -> StoredMessage:
        record = self.log.pread(place[0], place[1])
        assert record is not None
        return decode_record(record)

    def is_empty_behind(self, offset: int) -> bool:
        file = self.log.files[-1]
        return not any(file.view[offset - file.first_offset :])


def _arguments(**changes: Any) -> tuple[Any, ...]:
    arguments = {
        "topic": b"orders",
        "queue_id": 1,
        "body": b"body",
        "properties": b"TAGS\x01a\x02",
        "flag": 0,
        "system_flag": 0,
        "born_ms": NOW_MS - 5,
        "born_host": HOST_V4,
        "reconsume_times": 0,
        "prepared_offset": 0,
        "now_ms": NOW_MS,
    }
    return tuple((arguments | changes).values())


def _entry(**changes: Any) -> Entry:
    _, _, *entry, _ = _arguments(**changes)
    return tuple(entry)


def _bench(
    form: str,
    folder: Path,
    *,
    store_host: bytes = HOST_V4,
    body_bytes_max: int = 4096,
    last_store_ms: int = 0,
    memory: Any = None,
) -> Bench:
    log = CommitLog([folder], FILE_BYTES)
    log.load()
    obstacles = Obstacles()
    growths: list[int] = []
    made = FORMS[form](
        log,
        store_host=store_host,
        body_bytes_max=body_bytes_max,
        last_store_ms=last_store_ms,
        next_offsets={(b"orders", 5): QueueOffset(70)},
        obstacles=obstacles,
        on_growth=lambda: growths.append(log.end),
        memory=memory,
    )
    return Bench(made, log, obstacles, growths)


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bench(form: str, tmp_path: Path) -> Bench:
    return _bench(form, tmp_path)


# --- offsets and times --------------------------------------------------------------------------


def test_messages_follow_one_another_and_count_per_queue(bench: Bench) -> None:
    places = [bench.append(queue_id=queue_id) for queue_id in (1, 2, 1, 5)]

    size = places[0][1]
    assert [place[0] for place in places] == [0, size, 2 * size, 3 * size]
    assert [place[2] for place in places] == [0, 0, 1, 70]
    assert bench.log.end == 4 * size
    for place in places:
        found = bench.message(place)
        assert (found.physical_offset, found.queue_offset) == (place[0], place[2])
    assert bench.appender.next_offset(b"orders", 1) == 2
    assert bench.appender.next_offset(b"orders", 9) is None


def test_half_and_rolled_back_messages_take_no_number(bench: Bench) -> None:
    flags = [0, SystemFlag.PREPARED, SystemFlag.COMMITTED, SystemFlag.ROLLED_BACK, 0]
    places = [bench.append(system_flag=int(flag)) for flag in flags]

    assert [place[2] for place in places] == [0, 1, 1, 2, 2]
    assert [bench.message(place).queue_offset for place in places] == [0, 0, 1, 0, 2]
    batch = bench.appender.append_batch(
        b"orders", 1, [_entry(system_flag=int(flag)) for flag in flags], NOW_MS
    )
    assert [place[2] for place in batch] == [3, 4, 4, 5, 5]
    assert [bench.message(place).queue_offset for place in batch] == [3, 0, 4, 0, 5]


def test_store_times_never_fall(form: str, tmp_path: Path) -> None:
    bench = _bench(form, tmp_path, last_store_ms=500)

    times = [bench.append(now_ms=now_ms)[3] for now_ms in (400, 600, 300)]
    (in_batch,) = bench.appender.append_batch(b"orders", 1, [_entry()], 100)

    assert [*times, in_batch[3]] == [500, 600, 600, 600]
    assert bench.message(in_batch).store_ms == 600


@pytest.mark.parametrize("store_host", [HOST_V4, HOST_V6])
@pytest.mark.parametrize("born_host", [HOST_V4, HOST_V6])
def test_the_flag_has_the_host_lengths_whatever_the_producer_says(
    form: str, tmp_path: Path, store_host: bytes, born_host: bytes
) -> None:
    bench = _bench(form, tmp_path, store_host=store_host)

    for claimed in (0, 0x10, 0x20, 0x30):
        place = bench.append(system_flag=claimed | 2, born_host=born_host)
        (in_batch,) = bench.appender.append_batch(
            b"orders", 1, [_entry(system_flag=claimed | 2, born_host=born_host)], NOW_MS
        )
        for found in (bench.message(place), bench.message(in_batch)):
            expected = 2 + 0x10 * (born_host == HOST_V6) + 0x20 * (store_host == HOST_V6)
            assert found.system_flag == expected
            assert (found.born_host_bytes, found.store_host_bytes) == (born_host, store_host)


def test_a_message_that_does_not_fit_a_file_begins_the_next(bench: Bench) -> None:
    offsets = [bench.append(body=bytes(4000))[0] for _ in range(40)]
    batch = bench.appender.append_batch(b"orders", 1, [_entry(body=bytes(4000))] * 14, NOW_MS)

    assert len(bench.log.files) == 4
    assert offsets[15] == FILE_BYTES
    assert batch[0][0] == 3 * FILE_BYTES, "a batch lies in one file"
    assert all(bench.message(place).body == bytes(4000) for place in batch)


def test_growth_is_reported_first_and_then_at_intervals(bench: Bench) -> None:
    for _ in range(100):
        bench.append()
    bench.appender.append_batch(b"orders", 1, [_entry()] * 20, NOW_MS)

    assert bench.growths[0] < 1000
    assert 5 < len(bench.growths) < 30
    assert bench.growths[-1] == bench.log.end


def test_a_forgotten_topic_restarts(bench: Bench) -> None:
    bench.append()
    bench.append(topic=b"others")

    with bench.appender.lock:
        bench.appender.forget_topic(b"orders")

    assert bench.append()[2] == 0
    assert bench.append(topic=b"others")[2] == 1


def test_many_threads_append_concurrently(bench: Bench) -> None:
    places: list[Appended] = []

    def run() -> None:
        for _ in range(200):
            places.append(bench.append(body=bytes(50)))
            places.extend(bench.appender.append_batch(b"orders", 1, [_entry()] * 3, NOW_MS))

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(place[2] for place in places) == list(range(4800))
    for place in places:
        found = bench.message(place)
        assert (found.physical_offset, found.queue_offset) == (place[0], place[2])


def test_a_batch_is_written_from_its_end_to_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = _bench("plain", tmp_path)
    bench.append()
    written: list[int] = []
    encode = encode_record

    def spy(view: memoryview, at: int, *arguments: Any) -> int:
        # Nothing of the batch exists before its first record does.
        assert int.from_bytes(view[bench.log.end : bench.log.end + 8]) == 0
        written.append(at)
        return encode(view, at, *arguments)

    monkeypatch.setattr("orbitmq.store.log.appender.encode_record", spy)
    places = bench.appender.append_batch(b"orders", 1, [_entry()] * 4, NOW_MS)

    assert written == [place[0] for place in reversed(places)]


# --- packed batches -----------------------------------------------------------------------------

BROKER_PROPERTIES = b"CLUSTER\x01c\x02"
PACKED = [
    BatchedMessage(7, b"one", b"TAGS\x01a\x02"),
    BatchedMessage(-1, b"two" * 50, b"KEYS\x01k\x02"),
]


def _packed(bench: Bench, messages: list[BatchedMessage], **changes: Any) -> AppendedBatch | None:
    packed = encode_batch(messages)
    arguments: dict[str, Any] = {
        "topic": b"orders",
        "queue_id": 5,
        "packed": b"before" + packed,
        "start": 6,
        "end": 6 + len(packed),
        "count": len(messages),
        "content_bytes": sum(
            len(body) + len(properties) + len(BROKER_PROPERTIES) for _, body, properties in messages
        ),
        "broker_properties": BROKER_PROPERTIES,
        "born_ms": NOW_MS - 5,
        "born_host": HOST_V4,
        "reconsume_times": 0,
        "now_ms": NOW_MS,
    }
    return bench.appender.append_packed(*(arguments | changes).values())


@pytest.mark.parametrize("born_host", [HOST_V4, HOST_V6])
def test_a_packed_batch_is_stored_like_its_messages(
    form: str, tmp_path: Path, born_host: bytes
) -> None:
    bench, other = _bench(form, tmp_path / "one"), _bench(form, tmp_path / "other")
    entries = [
        _entry(flag=flag, body=body, properties=properties + BROKER_PROPERTIES, born_host=born_host)
        for flag, body, properties in PACKED
    ]

    for number in (70, 72):
        place = _packed(bench, PACKED, born_host=born_host)
        places = other.appender.append_batch(b"orders", 5, entries, NOW_MS)

        ids = ",".join(encode_message_id(HOST_V4, offset) for offset, *_ in places)
        size = sum(size for _, size, *_ in places)
        assert place == (places[0][0], size, number, ids.encode())
    assert bench.log.end == other.log.end
    assert bytes(bench.log.files[0].view) == bytes(other.log.files[0].view)
    assert bench.appender.next_offset(b"orders", 5) == 74


def test_store_times_of_batches_never_fall(bench: Bench) -> None:
    _packed(bench, PACKED, now_ms=NOW_MS)
    place = _packed(bench, PACKED[:1], now_ms=NOW_MS - 50)

    assert place is not None
    record = bench.log.pread(place[0], place[1])
    assert record is not None
    assert decode_record(record).store_ms == NOW_MS


def test_a_batch_that_does_not_fit_a_file_begins_the_next(bench: Bench) -> None:
    messages = [BatchedMessage(0, bytes(4000), b"a\x01b\x02")] * 9
    _packed(bench, messages)

    place = _packed(bench, messages)

    assert place is not None
    assert (place[0], place[2]) == (FILE_BYTES, 79)
    assert len(bench.growths) == 2


def test_a_packed_batch_may_be_the_first_of_its_queue(bench: Bench) -> None:
    place = _packed(bench, PACKED, queue_id=6)

    assert place is not None
    assert place[2] == 0
    assert bench.appender.next_offset(b"orders", 6) == 2
    with pytest.raises(MessageError, match="no queue -1"):
        _packed(bench, PACKED, queue_id=-1)


class _Elsewhere:
    """Keeps all topics."""

    def keeps(self, _topic: bytes) -> bool:
        return True


def test_a_packed_batch_for_a_topic_in_memory_is_declined(form: str, tmp_path: Path) -> None:
    bench = _bench(form, tmp_path, memory=_Elsewhere())

    assert _packed(bench, PACKED, queue_id=6) is None
    assert bench.log.end == 0
    assert bench.appender.next_offset(b"orders", 6) is None


def test_a_packed_batch_that_cannot_be_stored_leaves_nothing(bench: Bench) -> None:
    with pytest.raises(MessageError, match="do not fit a log file"):
        _packed(bench, [BatchedMessage(0, bytes(4000), b"a\x01b\x02")] * 17)
    with pytest.raises(ValueError, match="do not fill"):
        _packed(bench, PACKED, content_bytes=1000)
    with pytest.raises(MessageError, match="does not fit its field"):
        _packed(bench, PACKED, born_ms=2**63)
    bench.obstacles.errors[UPKEEP] = unwritable(StateError("no room"))  # type: ignore[arg-type]  # any error
    with pytest.raises(StateError, match="no room"):
        _packed(bench, PACKED)

    assert bench.log.end == 0
    assert bench.is_empty_behind(0)
    assert bench.appender.next_offset(b"orders", 5) == 70


# --- what is refused ----------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"topic": b""}, "a topic of 0 bytes"),
    ({"topic": b"t" * 256}, "a topic of 256 bytes"),
    ({"topic": b"a/b"}, "name of a folder"),
    ({"topic": b".."}, "name of a folder"),
    ({"topic": b"a\0b"}, "name of a folder"),
    ({"queue_id": -1}, "no queue -1"),
    ({"queue_id": 2**31}, "does not fit its field"),
    ({"body": bytes(4097)}, "above the limit of 4096"),
    ({"properties": b"x" * 32768}, "above 32767"),
    ({"properties": b"a\x01b\0\x02"}, "hold a zero byte"),
    ({"flag": 2**31}, "does not fit its field"),
    ({"system_flag": 2**40}, "does not fit its field"),
    ({"system_flag": 2**70}, "does not fit its field"),
    ({"born_ms": 2**63}, "does not fit its field"),
    ({"reconsume_times": -(2**31) - 1}, "does not fit its field"),
    ({"prepared_offset": 2**63}, "does not fit its field"),
    ({"born_host": b"12345"}, "does not fit the system flag"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED)
def test_a_refused_message_leaves_nothing(
    bench: Bench, changes: dict[str, Any], reason: str
) -> None:
    bench.append()
    end = bench.log.end

    with pytest.raises(MessageError, match=reason):
        bench.append(**changes)
    arguments = _arguments(**changes)
    topic, queue_id = arguments[:2]
    for entries in ([_entry(), _entry(**changes)], [_entry(**changes), _entry()]):
        with pytest.raises(MessageError, match=reason):
            bench.appender.append_batch(topic, queue_id, entries, NOW_MS)

    assert bench.log.end == end
    assert bench.is_empty_behind(end)
    assert bench.append()[2] == 1


def test_a_batch_larger_than_a_file_is_refused_as_a_whole(bench: Bench) -> None:
    with pytest.raises(MessageError, match="do not fit a log file"):
        bench.appender.append_batch(b"orders", 1, [_entry(body=bytes(4000))] * 17, NOW_MS)

    assert bench.append()[2] == 0


def test_an_empty_batch_stores_nothing(bench: Bench) -> None:
    assert bench.appender.append_batch(b"orders", 1, [], NOW_MS) == []
    assert bench.log.end == 0


def test_nothing_is_appended_while_there_is_an_obstacle(bench: Bench) -> None:
    bench.obstacles.errors[UPKEEP] = unwritable(StateError("no room"))  # type: ignore[arg-type]  # any error
    with pytest.raises(StateError, match="no room"):
        bench.append()
    with pytest.raises(StateError, match="no room"):
        bench.appender.append_batch(b"orders", 1, [_entry()], NOW_MS)
    assert bench.log.end == 0

    del bench.obstacles.errors[UPKEEP]
    assert bench.append()[2] == 0


def test_a_closed_appender_gets_the_refusal_of_the_log(bench: Bench) -> None:
    bench.append()
    bench.appender.close()
    bench.log.close()

    with pytest.raises(StateError, match="closed"):
        bench.append()


# --- both forms alike ---------------------------------------------------------------------------


def _random_changes(rng: random.Random) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "topic": rng.choice([b"orders", b"T" * 127, b"T" * 128, b"T" * 255, "тема".encode()]),
        "queue_id": rng.choice([0, 0, 0, 7, 2**31 - 1]),
        "body": rng.randbytes(rng.choice([0, 1, 128, 3000])),
        "properties": rng.choice([b"", b"TAGS\x01a\x02", b"K\x01" + b"v" * 500 + b"\x02"]),
        "system_flag": rng.choice([0, 1, 4, 8, 12, 0x30, 0x1F]),
        "born_host": rng.choice([HOST_V4, HOST_V6]),
        "now_ms": NOW_MS + rng.randrange(-50, 50),
    }
    if rng.randrange(5) == 0:
        changes |= rng.choice(REFUSED)[0]
    return changes


def _outcome(bench: Bench, rng: random.Random) -> object:
    changes = _random_changes(rng)
    try:
        if rng.randrange(3):
            return bench.append(**changes)
        same = {name: changes[name] for name in ("topic", "queue_id")}
        entries = [_entry(**changes)]
        entries += [_entry(**(_random_changes(rng) | same)) for _ in range(rng.randrange(5))]
        return bench.appender.append_batch(changes["topic"], changes["queue_id"], entries, NOW_MS)
    except OrbitError as error:
        return type(error), str(error).partition(":")[0]


@pytest.mark.parametrize("seed", range(4))
def test_both_forms_leave_the_same_bytes_results_and_errors(tmp_path: Path, seed: int) -> None:
    if "compiled" not in FORMS:
        pytest.skip("not compiled; run: pip install --editable .")
    plain, compiled = (_bench(name, tmp_path / name) for name in ("plain", "compiled"))
    plain_rng, compiled_rng = random.Random(seed), random.Random(seed)

    for _ in range(500):
        assert _outcome(plain, plain_rng) == _outcome(compiled, compiled_rng)

    assert plain.log.end == compiled.log.end > 3 * FILE_BYTES
    assert plain.growths == compiled.growths
    for one, other in zip(plain.log.files, compiled.log.files, strict=True):
        assert bytes(one.view) == bytes(other.view)


def test_a_forgotten_topic_returns_its_next_numbers_and_may_resume_anywhere(bench: Bench) -> None:
    bench.append()
    bench.append()

    assert bench.appender.forget_topic(b"orders") == {1: 2, 5: 70}
    assert bench.appender.next_offset(b"orders", 1) is None
    bench.appender.set_next_offset(b"orders", 1, QueueOffset(99))

    assert bench.append()[2] == 99
