from __future__ import annotations

import datetime
import logging
import os
from pathlib import Path

import pytest

from orbitmq.clock import ManualClock
from orbitmq.errors import SettingsError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.store.retention import (
    REQUESTED_PASSES,
    DiskUse,
    FileAge,
    Retention,
    RetentionConfig,
    RetentionPlan,
    decide,
    measure_disk,
    parse_hours,
)
from tests.unit.store.written_stores import LOG_FILE_BYTES, T0, fill, open_store

GIB = 1 << 30
HOUR_MS = 3_600_000
# Noon of a day in UTC.
NOON_MS = int(datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC).timestamp() * 1000)
FOUR_MS = NOON_MS - 8 * HOUR_MS


def disk(used_percent: float, *, total: int = 1000 * GIB, device: int = 1) -> DiskUse:
    used = int(total * used_percent / 100)
    return DiskUse(device=device, used_bytes=used, free_bytes=total - used)


def files(*ages_hours: float, now_ms: int = NOON_MS, device: int = 1) -> list[FileAge]:
    return [
        FileAge(
            path=Path(str(number)),
            device=device,
            end_offset=(number + 1) * GIB,
            file_bytes=GIB,
            modified_ms=int(now_ms - age * HOUR_MS),
        )
        for number, age in enumerate(ages_hours)
    ]


def decided(
    found: list[FileAge],
    used_percent: float = 50,
    *,
    now_ms: int = NOON_MS,
    queue_disk: DiskUse | None = None,
    log_disks: list[DiskUse] | None = None,
    is_requested: bool = False,
    keep_from: PhysicalOffset | None = None,
    config: RetentionConfig | None = None,
) -> RetentionPlan:
    return decide(
        found,
        log_disks=log_disks if log_disks is not None else [disk(used_percent)],
        queue_disk=queue_disk or disk(used_percent),
        now_ms=now_ms,
        config=config or RetentionConfig(),
        is_requested=is_requested,
        keep_from=keep_from,
        zone=datetime.UTC,
    )


def names(decision: RetentionPlan) -> list[str]:
    return [deletion.path.name for deletion in decision.deletions]


def test_old_files_are_deleted_at_their_hour_and_kept_at_others() -> None:
    at_four = decided(files(100, 80, 71, 1, now_ms=FOUR_MS), now_ms=FOUR_MS)
    at_noon = decided(files(100, 80, 71, 1))

    assert names(at_four) == ["0", "1"]
    assert "100.0 hours ago, kept for 72" in at_four.deletions[0].reason
    assert "deleteWhen 04" in at_four.deletions[0].reason
    assert names(at_noon) == []
    assert at_four.refusal == at_noon.refusal == ""


def test_a_file_kept_for_exactly_its_time_is_deleted() -> None:
    assert names(decided(files(72, 71.99, 0, now_ms=FOUR_MS), now_ms=FOUR_MS)) == ["0"]


def test_nothing_after_a_kept_file_is_deleted() -> None:
    assert names(decided(files(1, 100, 100, now_ms=FOUR_MS), now_ms=FOUR_MS)) == []


def test_the_file_being_written_is_never_deleted() -> None:
    assert names(decided(files(100), 99, now_ms=FOUR_MS)) == []
    assert names(decided(files(100, 100), 99)) == ["0"]
    assert names(decided([], 99)) == []


def test_one_pass_deletes_a_limited_number_of_files() -> None:
    many = files(*[100.0] * 30)

    assert len(decided(many, is_requested=True).deletions) == 10
    few = RetentionConfig(files_max=3)
    assert len(decided(many, is_requested=True, config=few).deletions) == 3


def test_a_filling_disk_deletes_old_files_at_any_hour() -> None:
    decision = decided(files(100, 1, 0), 76)

    assert names(decision) == ["0"]
    assert "disk of the log is 76 % used, above 75" in decision.deletions[0].reason
    assert names(decided(files(100, 1, 0), 75)) == []


def test_a_nearly_full_disk_costs_young_files_but_no_more_than_needed() -> None:
    # 86.2 % of 1000 GiB: two files of one GiB bring it to 86.0, twelve to 85.
    decision = decided(files(*[1.0] * 40), 86.2, config=RetentionConfig(files_max=100))

    assert len(decision.deletions) == 12
    assert "87 % used, above 85" in decision.deletions[0].reason
    assert "86 % used, above 85" in decision.deletions[-1].reason
    assert decision.refusal == ""


def test_young_files_are_kept_if_forced_deletion_is_off() -> None:
    config = RetentionConfig(delete_forcibly=False)

    assert names(decided(files(100, 1, 0), 95, config=config)) == ["0"]


def test_a_full_disk_refuses_messages() -> None:
    decision = decided(files(1, 0), 91)

    assert decision.refusal == "the disk of the log is 91 % used, above 90"
    assert names(decision) == ["0"]
    assert decided(files(1, 0), 90).refusal == ""


def test_a_full_disk_of_the_queues_counts_too() -> None:
    decision = decided(files(1, 1, 0), 10, queue_disk=disk(91, device=2))

    assert decision.refusal == "the disk of the queues is 91 % used, above 90"
    # Files of the log on another disk do not help, but are deleted as in RocketMQ.
    assert names(decision) == ["0", "1"]


def test_of_several_log_disks_the_emptiest_counts() -> None:
    both = [disk(95, device=2), disk(60, device=3)]

    decision = decided(files(1, 1, 0, device=2), log_disks=both)

    assert decision == RetentionPlan()


def test_too_few_free_bytes_cost_files_until_there_are_enough() -> None:
    config = RetentionConfig(free_bytes_min=502 * GIB)

    decision = decided(files(1, 1, 1, 1, 0), 50, config=config)

    assert names(decision) == ["0", "1"]
    assert f"{500 * GIB} bytes free, below {502 * GIB}" in decision.deletions[0].reason


def test_limits_are_bounded_as_in_rocketmq() -> None:
    loose = RetentionConfig(used_percent_max=100, forced_percent=100, full_percent=100)
    tight = RetentionConfig(used_percent_max=0, forced_percent=0, full_percent=0)

    assert decided(files(1, 0), 91, config=loose).refusal
    assert names(decided(files(1, 0), 86, config=loose)) == ["0"]
    assert decided(files(1, 0), 30, config=tight) == RetentionPlan()
    assert names(decided(files(100, 0), 11, config=tight)) == ["0"]


def test_an_operator_may_request_deletion_at_any_hour() -> None:
    decision = decided(files(100, 1, 0), is_requested=True)

    assert names(decision) == ["0"]
    assert "operator" in decision.deletions[0].reason


def test_files_that_are_still_needed_are_kept() -> None:
    found = files(100, 100, 100, 0)

    assert names(decided(found, 95, keep_from=PhysicalOffset(2 * GIB))) == ["0", "1"]
    plan = decided(found, 95, keep_from=PhysicalOffset(2 * GIB - 1))
    assert names(plan) == ["0"]
    assert plan.kept is not None
    assert plan.kept.path.name == "1"
    assert decided(files(1, 0), keep_from=PhysicalOffset(0)).kept is None


def test_a_disk_that_cannot_be_measured_counts_as_empty() -> None:
    nothing = DiskUse(device=1, used_bytes=0, free_bytes=0)

    assert decided(files(1, 0), log_disks=[], queue_disk=nothing) == RetentionPlan()


def test_hours_are_read_as_rocketmq_writes_them() -> None:
    assert parse_hours("04") == {4}
    assert parse_hours("04; 16;") == {4, 16}
    assert parse_hours("") == frozenset()
    for wrong in ("24", "four", "-1"):
        with pytest.raises(SettingsError, match="not an hour"):
            parse_hours(wrong)


def test_the_hour_is_local_time() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=-8))

    decision = decide(
        files(100, 0),
        log_disks=[disk(10)],
        queue_disk=disk(10),
        now_ms=NOON_MS,
        config=RetentionConfig(),
        zone=zone,
    )

    assert names(decision) == ["0"]


def test_the_disk_of_a_missing_folder_is_measured(tmp_path: Path) -> None:
    found = measure_disk(tmp_path / "not" / "yet")

    assert found.device == tmp_path.stat().st_dev
    assert 0 <= found.percent() <= 100
    assert found.percent(found.used_bytes) == 0


# --- running ----------------------------------------------------------------------------------


def test_a_pass_deletes_files_and_queues_and_index_follow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path)
    old, new = NOON_MS - 100 * HOUR_MS, NOON_MS - HOUR_MS
    for path in (tmp_path / "commitlog").iterdir():
        modified_ms = old if int(path.name) < 3 * LOG_FILE_BYTES else new
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)
    used = [60.0]
    with open_store(tmp_path) as store, caplog.at_level(logging.INFO):
        parts = store.parts
        index_files = len(list((tmp_path / "index").iterdir()))
        retention = Retention(
            config=RetentionConfig(delete_when=""),
            commit_log=parts.log,
            queues=parts.queues,
            indexes=parts.indexes,
            log_folders=[tmp_path / "commitlog"],
            queue_folder=tmp_path / "consumequeue",
            clock=ManualClock(NOON_MS),
            measure=lambda _: disk(used[0]),
        )
        retention.run()
        assert store.log_start == 0

        retention.request()
        retention.run()

        assert store.log_start == 3 * LOG_FILE_BYTES
        assert store.start_of("topic0", 0) > 100
        assert len(list((tmp_path / "index").iterdir())) < index_files
        assert not (tmp_path / "consumequeue" / "topic0" / "0" / f"{0:020d}").exists()
        assert "log file deleted file=00000000000000000000 reason=last written" in caplog.text
        read = store.read("topic0", 0, store.start_of("topic0", 0))
        assert read.records

        used[0] = 95.0
        retention.run()
        assert retention.refusal
        used[0] = 50.0
        retention.run()
        assert not retention.refusal
        assert "messages refused until the disk has room" in caplog.text
        assert "messages accepted again" in caplog.text


def test_a_request_lasts_for_some_passes(tmp_path: Path) -> None:
    fill(tmp_path)
    with open_store(tmp_path) as store:
        parts = store.parts
        retention = Retention(
            config=RetentionConfig(delete_when="", files_max=1, reserved_hours=0),
            commit_log=parts.log,
            queues=parts.queues,
            indexes=None,
            log_folders=[tmp_path / "commitlog"],
            queue_folder=tmp_path / "consumequeue",
            clock=ManualClock(T0 + 10**12),
            measure=lambda _: disk(10),
        )
        retention.request()

        passes = [len(retention.run().deletions) for _ in range(REQUESTED_PASSES + 2)]

    assert passes[:5] == [1, 1, 1, 1, 1]
    assert sum(passes) == 5  # all but the file being written


def test_invalid_hours_stop_the_start() -> None:
    with pytest.raises(SettingsError, match="'noon' is not an hour"):
        RetentionConfig(delete_when="noon")
