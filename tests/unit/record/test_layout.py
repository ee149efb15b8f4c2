"""Sizes and flags of records."""

from __future__ import annotations

import pytest

from orbitmq.record.layout import SystemFlag, is_queued, record_bytes


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


@pytest.mark.parametrize(
    ("system_flag", "queued"),
    [(0, True), (4, False), (8, True), (12, False), (0x331, True), (0x335, False), (-1, False)],
)
def test_half_and_rolled_back_records_have_no_queue_entry(system_flag: int, queued: bool) -> None:  # noqa: FBT001
    assert is_queued(system_flag) is queued


def test_flags_have_the_bits_that_java_gives_them() -> None:
    assert {flag.name: flag.value for flag in SystemFlag.__members__.values()} == {
        "COMPRESSED": 0x1,
        "MULTI_TAGS": 0x2,
        "PREPARED": 0x4,
        "COMMITTED": 0x8,
        "ROLLED_BACK": 0xC,
        "BORN_HOST_V6": 0x10,
        "STORE_HOST_V6": 0x20,
        "NEEDS_UNWRAPPING": 0x40,
        "INNER_BATCH": 0x80,
        "LZ4": 0x100,
        "ZSTD": 0x200,
        "ZLIB": 0x300,
    }
