"""Where the parts of many records lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.record.decode import Places, locate
from orbitmq.spark.record_places import Located, locate_all
from tests.unit.record.sample_records import HOST_V6, KNOWN, Sample, samples
from tests.unit.spark.plain_rows import joined


def _locate(*records: bytes) -> list[Located]:
    buffer, positions = joined(records)
    return locate_all(np.frombuffer(buffer, dtype=np.uint8), positions)


@given(some=st.lists(samples(), min_size=1, max_size=10))
def test_parts_lie_where_the_plain_form_finds_them(some: list[Sample]) -> None:
    records = [sample.encode() for sample in some]
    buffer, positions = joined(records, gaps=[b"gap"])

    found = locate_all(np.frombuffer(buffer, dtype=np.uint8), positions)

    assert sorted(row for located in found for row in located.rows) == list(range(len(records)))
    for located in found:
        for place, row in enumerate(located.rows):
            at = int(positions[row])
            plain = locate(buffer, at, len(buffer), check_body=False)
            assert isinstance(plain, Places)
            assert located.body_at[place] == plain.body_at
            assert located.body_bytes[place] == plain.body_end - plain.body_at
            assert located.topic_at[place] == plain.topic_at
            assert located.topic_bytes[place] == plain.topic_end - plain.topic_at
            assert located.properties_at[place] == plain.properties_at
            assert located.properties_bytes[place] == plain.end - plain.properties_at
            assert located.numbers("store_ms")[place] == some[row].store_ms
            assert located.heads["store_host"][place].tobytes() == some[row].store_host


def test_records_of_one_layout_come_together() -> None:
    born_v6 = replace(KNOWN, system_flag=0x10, born_host=HOST_V6)
    store_v6 = replace(KNOWN, system_flag=0x20, store_host=HOST_V6)
    long_topic = replace(KNOWN, topic=b"t" * 128)

    found = _locate(
        *(sample.encode() for sample in (KNOWN, born_v6, store_v6, KNOWN, long_topic, born_v6))
    )

    assert [located.rows.tolist() for located in found] == [[0, 3], [1, 5], [2], [4]]


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 103),  # the record ends before its properties do
        (0, 105),  # and behind them, in the next record
        (4, 0xDAA320A8),
        (36, 0x30),  # hosts of 20 bytes
        (84, 3),
        (84, 0x7FFFFFFF),
        (84, 0xFFFFFFFF),
    ],
)
def test_a_record_whose_lengths_do_not_add_up_is_left_out(at: int, value: int) -> None:
    damaged = bytearray(KNOWN.encode())
    damaged[at : at + 4] = value.to_bytes(4)

    (located,) = _locate(KNOWN.encode(), bytes(damaged), KNOWN.encode())

    assert located.rows.tolist() == [0, 2]


def test_a_record_that_is_shorter_than_its_flag_says_is_left_out() -> None:
    short = bytearray(KNOWN.encode())
    short[39] = 0x30

    assert _locate(bytes(short)) == []


def test_what_is_nearer_to_the_end_than_any_record_is_left_out() -> None:
    (located,) = _locate(KNOWN.encode(), KNOWN.encode()[:90])

    assert located.rows.tolist() == [0]
    assert _locate(b"few bytes") == []
