"""The plan of a replay: its name, its chunks, and what makes it another one."""

from __future__ import annotations

import msgspec
import pytest

from orbitmq.errors import SettingsError
from orbitmq.pipelines.replaying.plan import (
    CHUNK_MESSAGES_MAX,
    CHUNKS_MAX,
    PIECES_MAX,
    Chunk,
    Piece,
    Plan,
    Request,
    Tile,
    check_id,
    check_same,
    chunk_count,
    chunks_of,
    whole_range,
)

REQUEST = Request(source="orders", into="again", namesrv="127.0.0.1:9876", into_namesrv="x:1")


def plan(request: Request = REQUEST, *, planned_ms: int = 1, chunks: int = 2) -> Plan:
    return Plan(
        id=request.id,
        request=request,
        planned_ms=planned_ms,
        in_range=50,
        first_ms=3,
        last_ms=4,
        rows=10 * chunks,
        chunks=[
            Chunk(pieces=[Piece("broker-a", 0, 10 * number, 10 * number + 10, 10)], checksum=number)
            for number in range(chunks)
        ],
    )


def test_the_same_arguments_have_the_same_name_and_others_another() -> None:
    same = msgspec.structs.replace(REQUEST)
    others = [
        msgspec.structs.replace(REQUEST, **{name: "other"})
        for name in ("source", "source_topic", "into", "start", "end", "where", "transform",
                     "namesrv", "into_namesrv")
    ]  # fmt: skip

    assert same.id == REQUEST.id
    assert len({REQUEST.id, *(one.id for one in others)}) == 1 + len(others)


def test_another_guarantee_does_not_make_another_replay_of_what_was_sent() -> None:
    weaker = msgspec.structs.replace(REQUEST, guarantee="at-least-once")

    assert weaker.id == REQUEST.id
    with pytest.raises(SettingsError, match="guarantee is 'exactly-once', not 'at-least-once'"):
        check_same(plan(), weaker)


def test_a_stored_plan_is_not_used_for_other_arguments() -> None:
    check_same(plan(), REQUEST)

    with pytest.raises(SettingsError, match=r"its where is '', not 'queueId = 1' \(.*another --id"):
        check_same(plan(), msgspec.structs.replace(REQUEST, where="queueId = 1"))


def test_brokers_know_a_plan_by_what_it_sends_and_not_by_when_it_was_made() -> None:
    later = plan(planned_ms=2)
    longer = plan(chunks=3)
    named = msgspec.structs.replace(plan(), id="second")

    assert later.digest == plan().digest
    assert len({plan().digest, longer.digest, named.digest}) == 3


def test_a_plan_is_the_same_after_it_was_stored() -> None:
    stored = msgspec.json.encode(plan())

    assert msgspec.json.decode(stored, type=Plan) == plan()


@pytest.mark.parametrize(
    ("messages", "rate", "count"),
    [
        (0, None, 0),
        (1, None, 1),
        (CHUNK_MESSAGES_MAX, None, 1),
        (CHUNK_MESSAGES_MAX + 1, None, 2),
        (100, 10.0, 2),
        (3, 0.1, 3),
        (10**9, None, CHUNKS_MAX),
        (10**6, 1.0, CHUNKS_MAX),
    ],
)
def test_chunks_are_bounded_and_last_seconds_at_a_rate(
    messages: int, rate: float | None, count: int
) -> None:
    assert chunk_count(messages, 8, rate) == count


def test_many_queues_do_not_make_a_plan_of_any_size() -> None:
    assert chunk_count(10**9, 1_000, None) * 1_000 <= PIECES_MAX


def tile(number: int, queue: int, first: int, end: int, checksum: int) -> Tile:
    piece = Piece("broker-a", queue, first, end, end - first)
    return Tile(number=number, piece=piece, checksum=checksum)


def test_a_chunk_has_a_piece_of_each_queue_and_chunks_follow_the_order_of_queues() -> None:
    chunks = chunks_of(
        [tile(2, 0, 10, 20, 1), tile(1, 1, 5, 6, 6), tile(1, 0, 0, 10, 3), tile(3, 0, 30, 31, 9)]
    )

    assert [[(one.queue_id, one.first) for one in chunk.pieces] for chunk in chunks] == [
        [(0, 0), (1, 5)],
        [(0, 10)],
        [(0, 30)],
    ]
    assert [chunk.checksum for chunk in chunks] == [6 ^ 3, 1, 9]
    assert [chunk.messages for chunk in chunks] == [11, 10, 1]
    assert whole_range(chunks) == [
        Piece("broker-a", 0, 0, 31, 21),
        Piece("broker-a", 1, 5, 6, 1),
    ]


@pytest.mark.parametrize("name", ["", "../plans", "a/b", ".hidden", "a b", "x" * 65])
def test_a_name_is_one_of_a_folder(name: str) -> None:
    with pytest.raises(SettingsError, match="a replay cannot be named"):
        check_id(name)
