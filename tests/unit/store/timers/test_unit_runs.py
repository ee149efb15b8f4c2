"""Runs of units, in both forms: what they put into a wheel, and what they make of damage."""

from __future__ import annotations

import contextlib
import random
from importlib import import_module
from types import ModuleType

import pytest

from orbitmq.store.timers import unit_runs
from orbitmq.store.timers.layout import SLOT, UNIT, WHEEL_BYTES, slot_index

SLOT_MS = 1_700_000_000_000
LOG_AT = 10_400
LONG_MAX = 2**63 - 1


def _forms() -> dict[str, ModuleType]:
    forms = {"plain": unit_runs}
    with contextlib.suppress(ImportError):
        forms["compiled"] = import_module("orbitmq.store.timers.compiled.unit_runs_cython")
    return forms


FORMS = _forms()


@pytest.fixture(params=list(FORMS))
def form(request: pytest.FixtureRequest) -> ModuleType:
    return FORMS[request.param]


def unit(previous: int, magic: int = 1, slot_ms: int = SLOT_MS, offset: int = 700) -> bytes:
    """A unit for that slot."""
    return UNIT.pack(52, previous, magic, slot_ms - 5000, 5000, offset, 100, 77, 250)


def slot(wheel: bytearray, slot_ms: int = SLOT_MS) -> tuple[int, ...]:
    """The fields of a slot."""
    return SLOT.unpack_from(wheel, slot_index(slot_ms) * SLOT.size)


def test_units_of_a_slot_become_a_chain_with_its_count(form: ModuleType) -> None:
    wheel = bytearray(WHEEL_BYTES)
    content = unit(-1, offset=900) + unit(LOG_AT) + unit(LOG_AT + 52, magic=5) + bytes(52)

    loaded = form.load_units(content, LOG_AT, wheel, SLOT_MS, 0)

    assert loaded == (3, 700, SLOT_MS, 700, False)
    assert slot(wheel) == (SLOT_MS // 1000, LOG_AT, LOG_AT + 104, 1, 0)
    assert form.chain_units(content, LOG_AT, LOG_AT + 104, SLOT_MS) == (
        [(250, 700, 5, 100), (250, 700, 1, 100), (250, 900, 1, 100)],
        -1,
    )


def test_slots_that_are_delivered_stay_empty(form: ModuleType) -> None:
    wheel = bytearray(WHEEL_BYTES)

    loaded = form.load_units(unit(-1), LOG_AT, wheel, SLOT_MS + 1000, 0)

    assert (loaded.units, slot(wheel)) == (1, (0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("log_start", "is_broken"), [(LOG_AT, False), (0, True)], ids=["deleted", "missing"]
)
def test_a_chain_may_begin_in_a_deleted_file_only(
    form: ModuleType, log_start: int, *, is_broken: bool
) -> None:
    wheel = bytearray(WHEEL_BYTES)

    loaded = form.load_units(unit(52), LOG_AT, wheel, 0, log_start)

    assert loaded.is_broken is is_broken
    assert bool(any(slot(wheel))) is not is_broken


@pytest.mark.parametrize(
    "values",
    [
        (51, -1, 1, SLOT_MS, 0, 1, 1, 0, 1),
        (52, -2, 1, SLOT_MS, 0, 1, 1, 0, 1),
        (52, LOG_AT, 1, SLOT_MS, 0, 1, 1, 0, 1),
        (52, -1, 0, SLOT_MS, 0, 1, 1, 0, 1),
        (52, -1, 16, SLOT_MS, 0, 1, 1, 0, 1),
        (52, -1, 1, SLOT_MS, 1, 1, 1, 0, 1),
        (52, -1, 1, -5000, 0, 1, 1, 0, 1),
        (52, -1, 1, SLOT_MS, 0, -1, 1, 0, 1),
        (52, -1, 1, SLOT_MS, 0, 1, 0, 0, 1),
        (52, -1, 1, SLOT_MS, 0, 1, 1, 0, 1001),
        (52, -1, 1, SLOT_MS, 0, 1, 1, 0, -1),
    ],
)
def test_bytes_that_are_no_unit_end_the_run(form: ModuleType, values: tuple[int, ...]) -> None:
    wheel = bytearray(WHEEL_BYTES)
    content = UNIT.pack(*values)

    assert form.load_units(content, LOG_AT, wheel, 0, 0).units == 0
    assert form.chain_units(content, LOG_AT, LOG_AT, SLOT_MS) == ([], LOG_AT)


def test_a_chain_ends_below_the_content_and_at_other_slots(form: ModuleType) -> None:
    content = unit(52, slot_ms=SLOT_MS + 1000) + unit(LOG_AT)

    assert form.chain_units(content, LOG_AT, LOG_AT, SLOT_MS + 1000)[1] == 52
    assert form.chain_units(content, LOG_AT, LOG_AT + 52, SLOT_MS)[1] == LOG_AT
    assert form.chain_units(content, LOG_AT, LOG_AT + 104, SLOT_MS) == ([], LOG_AT + 104)


def test_a_wheel_of_another_size_is_refused(form: ModuleType) -> None:
    with pytest.raises(ValueError, match="a wheel of 32 bytes"):
        form.load_units(unit(-1), LOG_AT, bytearray(32), 0, 0)


@pytest.mark.skipif(len(FORMS) < 2, reason="not compiled")
def test_both_forms_make_the_same_of_any_bytes() -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(10):
        content = bytearray()
        lasts: dict[int, int] = {}
        for number in range(20):
            slot_ms = SLOT_MS + chance.randrange(3) * 1000
            content += unit(lasts.get(slot_ms, -1), chance.choice([1, 1, 3, 5, 7]), slot_ms)
            lasts[slot_ms] = LOG_AT + number * 52
        if chance.random() < 0.7:
            at = chance.randrange(len(content) * 8)
            content[at // 8] ^= 1 << at % 8
        made = []
        for each in FORMS.values():
            wheel = bytearray(WHEEL_BYTES)
            loaded = each.load_units(bytes(content), LOG_AT, wheel, 0, 0)
            chains = [
                each.chain_units(bytes(content), LOG_AT, last, slot_ms)
                for slot_ms, last in lasts.items()
            ]
            made.append((loaded, chains, bytes(wheel)))

        assert made[0] == made[1], f"seed={seed}"
