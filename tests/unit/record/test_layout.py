"""Sizes and flags of records."""

from __future__ import annotations

import pytest

from orbitmq.record import layout
from orbitmq.record.layout import FIXED_BYTES, SystemFlag, is_queued, record_bytes


@pytest.mark.parametrize(
    ("topic_bytes", "system_flag", "size"),
    [
        (0, 0, 91),
        (127, 0, 91 + 127),
        (128, 0, 92 + 128),
        (255, 0, 92 + 255),
        (1, 0x10, 91 + 12 + 1),
        (1, 0x20, 91 + 12 + 1),
        (1, 0x30, 91 + 24 + 1),
        (1, -1, 91 + 24 + 1),
    ],
)
def test_hosts_and_a_long_topic_make_a_record_longer(
    topic_bytes: int, system_flag: int, size: int
) -> None:
    found = record_bytes(
        body_bytes=1000,
        topic_bytes=topic_bytes,
        properties_bytes=100,
        system_flag=system_flag,
    )

    assert found == size + 1100


def test_the_fixed_bytes_are_those_of_an_empty_record() -> None:
    empty = record_bytes(body_bytes=0, topic_bytes=0, properties_bytes=0, system_flag=0)

    assert empty == FIXED_BYTES


@pytest.mark.parametrize(
    ("system_flag", "queued"),
    [(0, True), (4, False), (8, True), (12, False), (0x331, True), (0x335, False), (-1, False)],
)
def test_half_and_rolled_back_records_have_no_queue_entry(system_flag: int, queued: bool) -> None:  # noqa: FBT001
    assert is_queued(system_flag) is queued


def test_plain_numbers_and_members_say_the_same() -> None:
    assert (layout.BORN_HOST_V6, layout.STORE_HOST_V6) == (
        SystemFlag.BORN_HOST_V6,
        SystemFlag.STORE_HOST_V6,
    )
    assert SystemFlag.COMPRESSED == layout.COMPRESSED
    assert (layout.COMMITTED, layout.ROLLED_BACK) == (SystemFlag.COMMITTED, SystemFlag.ROLLED_BACK)
    assert int(layout.TRANSACTION_MASK) == layout.ROLLED_BACK
    assert SystemFlag.ZLIB & layout.COMPRESSION_MASK == SystemFlag.ZLIB
