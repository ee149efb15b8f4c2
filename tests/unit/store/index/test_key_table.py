"""The bytes of an index file, in both forms: what is put, what is passed over, what is refused.

Every test runs with the plain form and, where it is built, with the compiled one.
"""

from __future__ import annotations

import contextlib
import random
import struct
from importlib import import_module
from types import ModuleType

import pytest

from orbitmq.record.scan import KEY
from orbitmq.store.index import key_table
from orbitmq.store.index.key_table import ENTRY_BYTES, HEADER, HEADER_BYTES, SLOT_BYTES

SLOTS, ENTRIES = 4, 10
ENTRIES_AT = HEADER_BYTES + SLOTS * SLOT_BYTES
LONG_MAX = 2**63 - 1


def _forms() -> dict[str, ModuleType]:
    forms = {"plain": key_table}
    with contextlib.suppress(ImportError):
        forms["compiled"] = import_module("orbitmq.store.index.compiled.key_table_cython")
    return forms


FORMS = _forms()


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> ModuleType:
    return FORMS[request.param]


def _table(slots: int = SLOTS, entries_max: int = ENTRIES) -> memoryview:
    return memoryview(bytearray(HEADER_BYTES + slots * SLOT_BYTES + entries_max * ENTRY_BYTES))


def _put(form: ModuleType, table: memoryview, *keys: tuple[int, int, int]) -> int:
    rows = b"".join(KEY.pack(*key) for key in keys)
    position: int = form.put_keys(table, SLOTS, ENTRIES, rows, 0)
    return position // KEY.size


def test_keys_get_entries_slots_and_a_header(form: ModuleType) -> None:
    table = _table()

    assert _put(form, table, (6, 100, 5_000), (2, 200, 8_500), (3, 200, 8_500)) == 3

    assert HEADER.unpack_from(table) == (5_000, 8_500, 100, 200, 2, 4)
    assert struct.unpack_from(">4i", table, HEADER_BYTES) == (0, 0, 2, 3)
    assert struct.unpack_from(">iqii", table, ENTRIES_AT + 20) == (6, 100, 0, 0)
    assert struct.unpack_from(">iqii", table, ENTRIES_AT + 40) == (2, 200, 3, 1)
    assert struct.unpack_from(">iqii", table, ENTRIES_AT + 60) == (3, 200, 3, 0)


def test_keys_below_the_end_offset_are_skipped(form: ModuleType) -> None:
    table = _table()
    _put(form, table, (1, 100, 1), (1, 200, 1))
    before = bytes(table)

    assert _put(form, table, (1, 0, 1), (1, 199, 1)) == 2
    assert bytes(table) == before

    assert _put(form, table, (1, 100, 1), (7, 200, 1)) == 2
    assert HEADER.unpack_from(table)[5] == 4


def test_it_stops_at_the_first_new_key_without_room(form: ModuleType) -> None:
    table = _table()
    keys = [(number, number * 100, 1) for number in range(ENTRIES)]

    assert _put(form, table, *keys) == ENTRIES - 1
    assert _put(form, table, *keys[:-2]) == ENTRIES - 2
    rows = b"".join(KEY.pack(*key) for key in keys)
    last = len(rows) - KEY.size
    assert form.put_keys(table, SLOTS, ENTRIES, rows, last) == last
    assert form.put_keys(table, SLOTS, ENTRIES, rows, len(rows)) == len(rows)


def test_a_slot_that_points_beyond_the_entries_begins_a_new_chain(form: ModuleType) -> None:
    table = _table()
    struct.pack_into(">4i", table, HEADER_BYTES, 5, -1, 2**31 - 1, 1)

    _put(form, table, (0, 0, 1), (1, 0, 1), (2, 0, 1), (3, 0, 1))

    previous = [struct.unpack_from(">i", table, ENTRIES_AT + n * 20 + 16)[0] for n in range(1, 5)]
    assert previous == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("begin_ms", "store_ms", "seconds"),
    [
        (1_000, 1_999, 0),
        (1_000, 2_000, 1),
        (5_000, 1_000, 0),
        (0, 9_000, 0),
        (-9_000, 9_000, 0),
        (1, LONG_MAX, 2**31 - 1),
        (1, -LONG_MAX - 1, 0),
        (LONG_MAX, -LONG_MAX - 1, 0),
    ],
)
def test_seconds_count_from_the_begin_and_stay_within_their_field(
    form: ModuleType, begin_ms: int, store_ms: int, seconds: int
) -> None:
    table = _table()

    _put(form, table, (0, 0, begin_ms), (0, 0, store_ms))

    assert struct.unpack_from(">i", table, ENTRIES_AT + 40 + 12) == (seconds,)


def test_slots_are_rebuilt_as_they_were(form: ModuleType) -> None:
    table = _table()
    _put(form, table, *((hashed, 0, 1) for hashed in (1, 5, 1, 2, 9)))
    expected = bytes(table)
    table[HEADER_BYTES:ENTRIES_AT] = b"\xff" * (SLOTS * SLOT_BYTES)

    assert form.chain_entries(table, SLOTS, ENTRIES, 6) == 2
    assert bytes(table) == expected
    assert form.chain_entries(table, SLOTS, ENTRIES, 4) == 1
    assert struct.unpack_from(">4i", table, HEADER_BYTES) == (0, 3, 0, 0)


@pytest.mark.parametrize(
    ("field", "value"), [(">i", (-7, 0)), (">q", (50, 4)), (">i", (-1, 12)), (">i", (2, 16))]
)
def test_invalid_entries_change_nothing(
    form: ModuleType, field: str, value: tuple[int, int]
) -> None:
    table = _table()
    _put(form, table, (1, 100, 1), (1, 200, 1), (1, 300, 1))
    struct.pack_into(field, table, ENTRIES_AT + 40 + value[1], value[0])
    before = bytes(table)

    assert form.chain_entries(table, SLOTS, ENTRIES, 4) is None
    assert bytes(table) == before


@pytest.mark.parametrize("end", [-1, 0, 1, ENTRIES + 1])
def test_a_number_without_an_entry_is_refused(form: ModuleType, end: int) -> None:
    assert form.chain_entries(_table(), SLOTS, ENTRIES, end) is None


@pytest.mark.parametrize(
    ("slots", "entries_max"),
    [(0, ENTRIES), (-4, ENTRIES), (SLOTS, 0), (SLOTS + 5, ENTRIES - 1 + 1), (2**40, 1), (1, 2**40)],
)
def test_a_table_of_another_size_is_refused(form: ModuleType, slots: int, entries_max: int) -> None:
    with pytest.raises(ValueError, match="not a table"):
        form.put_keys(_table(), slots, entries_max, b"", 0)
    with pytest.raises(ValueError, match="not a table"):
        form.chain_entries(_table(), slots, entries_max, 2)


@pytest.mark.parametrize(("size", "at"), [(19, 0), (20, 1), (20, -20), (20, 40)])
def test_incomplete_keys_are_refused(form: ModuleType, size: int, at: int) -> None:
    with pytest.raises(ValueError, match="not keys"):
        form.put_keys(_table(), SLOTS, ENTRIES, bytes(size), at)


@pytest.mark.parametrize("seed", range(6))
def test_both_forms_leave_the_same_bytes_whatever_the_file_holds(seed: int) -> None:
    if "compiled" not in FORMS:
        pytest.skip("not compiled; run: pip install --editable .")
    rng = random.Random(seed)
    for _ in range(300):
        slots, entries_max = rng.randrange(1, 9), rng.randrange(1, 40)
        size = len(_table(slots, entries_max))
        content = rng.choice([bytes(size), rng.randbytes(size)])
        tables = {name: memoryview(bytearray(content)) for name in FORMS}
        for _ in range(rng.randrange(1, 6)):
            rows = b"".join(
                KEY.pack(
                    rng.choice([rng.randrange(20), rng.randrange(-(2**31), 2**31)]),
                    rng.choice([rng.randrange(1000), rng.randrange(-(2**63), 2**63)]),
                    rng.choice([rng.randrange(10**6), rng.randrange(-(2**63), 2**63)]),
                )
                for _ in range(rng.randrange(12))
            )
            at = rng.randrange(len(rows) // KEY.size + 1) * KEY.size
            end = rng.randrange(entries_max + 2)
            results = {
                (
                    form.put_keys(tables[name], slots, entries_max, rows, at),
                    form.chain_entries(tables[name], slots, entries_max, end),
                )
                for name, form in FORMS.items()
            }
            assert len(results) == 1
            assert len({bytes(table) for table in tables.values()}) == 1
