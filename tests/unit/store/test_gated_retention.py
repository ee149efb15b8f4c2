"""Retention that waits for a gate: which files it keeps, and when the gate ends."""

from __future__ import annotations

import datetime
import logging
import os
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import DiskFullError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.log.draft import Draft
from orbitmq.store.retention import (
    DiskUse,
    Gate,
    GateOnFull,
    RetentionConfig,
    RetentionPlan,
    decide,
)
from tests.unit.store.stores import LOG_FILE_BYTES, open_store
from tests.unit.store.test_retention import FOUR_MS, GIB, NOON_MS, disk, files, names

DELETING = RetentionConfig(gate_on_full=GateOnFull.DELETE)


def gate(keep_from: int) -> Gate:
    return Gate(keep_from=PhysicalOffset(keep_from), holder="archive 'lake'", hint="release it")


def decided(
    used_percent: float,
    keep_from: int,
    *ages: float,
    config: RetentionConfig | None = None,
    now_ms: int = NOON_MS,
) -> RetentionPlan:
    return decide(
        files(*ages, now_ms=now_ms),
        log_disks=[disk(used_percent)],
        queue_disk=disk(used_percent),
        now_ms=now_ms,
        config=config or RetentionConfig(),
        gate=gate(keep_from),
        zone=datetime.UTC,
    )


@pytest.mark.parametrize(
    ("keep_from", "deleted"),
    [(0, 0), (1, 0), (GIB - 1, 0), (GIB, 1), (GIB + 1, 1), (2 * GIB - 1, 1), (2 * GIB, 2)],
)
def test_a_file_goes_when_no_byte_of_it_is_behind_the_gate(keep_from: int, deleted: int) -> None:
    plan = decided(50, keep_from, 100, 100, 100, 0, now_ms=FOUR_MS)

    assert names(plan) == ["0", "1"][:deleted]
    assert plan.gated is not None
    assert plan.gated.path.name == str(deleted)
    assert plan.refusal == ""


def test_a_gate_behind_everything_that_is_past_its_time_keeps_nothing() -> None:
    plan = decided(50, 2 * GIB, 100, 100, 1, 0, now_ms=FOUR_MS)

    assert names(plan) == ["0", "1"]
    assert (plan.gated, plan.overdue) == (None, ())


def test_files_past_their_time_are_counted_at_any_hour() -> None:
    plan = decided(50, GIB, 100, 100, 80, 1, 0)

    assert (names(plan), plan.gated) == ([], None)
    assert plan.overdue == (GIB, 2 * GIB, 3 * GIB)


def test_forced_deletion_waits_for_the_gate_until_the_disk_is_full() -> None:
    pressed = decided(88, 0, 1, 1, 0, config=DELETING)
    full = decided(91, 0, *[1.0] * 20, config=DELETING)

    assert names(pressed) == []
    assert pressed.gated is not None
    # One file of 1000 GiB takes the disk to 90.9 %, so ten bring it to 90.
    assert len(full.deletions) == 10
    assert full.deletions[0].needed_by == "archive 'lake'"
    assert "91 % used, above 90" in full.deletions[0].reason


def test_a_full_disk_refuses_messages_and_names_the_archive() -> None:
    plan = decided(91, 0, 1, 1, 0)

    assert names(plan) == []
    assert plan.refusal == (
        "the disk of the log is 91 % used, above 90; its oldest files are kept for archive 'lake'"
    )


def test_a_full_disk_that_no_gate_fills_names_no_archive() -> None:
    plan = decided(91, 5 * GIB, 1, 1, 0)

    assert names(plan) == ["0", "1"]
    assert plan.refusal == "the disk of the log is 91 % used, above 90"


@pytest.mark.parametrize(("age", "waits"), [(9.9, True), (10, False)])
def test_a_nearly_full_disk_waits_for_the_gate_up_to_an_age(age: float, *, waits: bool) -> None:
    deleting = RetentionConfig(gate_on_full=GateOnFull.DELETE, gate_hours_max=10)
    refusing = RetentionConfig(gate_hours_max=10)

    assert bool(names(decided(86, 0, age, 1, 0, config=deleting))) is not waits
    plan = decided(86, 0, age, 1, 0, config=refusing)
    assert names(plan) == []
    assert ("gateMaxAge is 10" in plan.refusal) is not waits
    assert ("archive 'lake'" in plan.refusal) is not waits


def test_age_alone_never_ends_a_gate() -> None:
    config = RetentionConfig(gate_on_full=GateOnFull.DELETE, gate_hours_max=1)

    plan = decided(50, 0, 1000, 1, 0, config=config, now_ms=FOUR_MS)

    assert names(plan) == []


def test_without_forced_deletion_a_gate_holds_on_a_full_disk() -> None:
    config = RetentionConfig(gate_on_full=GateOnFull.DELETE, delete_forcibly=False)

    plan = decided(95, 0, 100, 100, 0, config=config)

    assert names(plan) == []
    assert "archive 'lake'" in plan.refusal


def test_a_store_keeps_what_its_gate_needs_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used = 50

    def measure(_: Path) -> DiskUse:
        return disk(used)

    clock = ManualClock(NOON_MS)
    retention = RetentionConfig(delete_when="", interval_ms=86_400_000)
    with open_store(tmp_path, retention=retention, clock=clock, measure=measure) as store:
        while store.log_end < 4 * LOG_FILE_BYTES:
            store.put(Draft(topic="orders", body=bytes(4000)))
        store._upkeep.round()
        for path in (tmp_path / "commitlog").iterdir():
            os.utime(path, ns=((NOON_MS - 100 * 3_600_000) * 1_000_000,) * 2)
        keep_from = LOG_FILE_BYTES + 5
        store.gate_retention(lambda: gate(keep_from))

        with caplog.at_level(logging.WARNING):
            store.delete_expired()
            store.delete_expired()

        assert store.log_start == LOG_FILE_BYTES
        assert store.overdue_files(keep_from) == 3
        assert store.overdue_files(2 * LOG_FILE_BYTES) == 2
        assert caplog.text.count("log files kept for an archive") == 1
        assert "archive=archive 'lake' hint=release it" in caplog.text
        used = 95
        store.delete_expired()
        with pytest.raises(DiskFullError, match="kept for archive 'lake'") as refused:
            store.put(Draft(topic="orders", body=b"refused"))
        assert "release it; sending works again" in refused.value.hint
        used = 50
        store.gate_retention(lambda: None)
        store.delete_expired()
        assert store.log_start == 4 * LOG_FILE_BYTES
        assert store.overdue_files(0) == 0
        store.put(Draft(topic="orders", body=b"taken"))
