"""Open transactions on a disk that runs full: kept, whatever else is deleted or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.transactions.half_messages import half_properties
from orbitmq.broker.transactions.half_queue import HalfQueue
from orbitmq.broker.transactions.recovery import Recovered
from orbitmq.clock import ManualClock
from orbitmq.errors import DiskFullError
from orbitmq.model.names import HALF_TOPIC
from orbitmq.record.properties import encode_properties
from orbitmq.store.log.draft import Draft
from tests.integration.store.test_store_retention import NOON_MS, Disk, body, filled
from tests.unit.store.stores import message

FILLS_THE_DISK = 95
FORCES_DELETION = 88


def prepare(halves: HalfQueue, unique_id: str) -> None:
    properties = half_properties({"UNIQ_KEY": unique_id}, topic="T", queue_id=0, group="g")
    draft = Draft(topic=HALF_TOPIC, body=b"half", properties=encode_properties(properties))
    halves.prepare(draft, topic="T", queue_id=0, immunity_ms=None)


def test_open_transactions_are_kept_while_the_disk_is_full(tmp_path: Path) -> None:
    disk = Disk()
    with filled(tmp_path, 0, disk) as store:
        halves = HalfQueue(store, clock=ManualClock(NOON_MS))
        halves.restore(Recovered())
        store.protect_log_from(halves.needed_from, "open transactions")
        prepare(halves, "A1")
        store.confirm([store.append(message(body(number))) for number in range(300)])
        halves.progress()
        store._upkeep.round()
        disk.used_percent = FORCES_DELETION
        store._upkeep.retain()
        assert store.log_start == 0

        disk.used_percent = FILLS_THE_DISK
        store._upkeep.retain()
        with pytest.raises(DiskFullError):
            prepare(halves, "A2")

        (half,) = halves.halves.values()
        found = halves.read(half.offset)
        assert found is not None
        assert found.body == b"half"
        assert store.log_start == 0

        # Once it has ended, the files are deleted like any others.
        disk.used_percent = FORCES_DELETION
        store._upkeep.retain()
        halves.roll_back(half)
        store.publish()
        halves.progress()
        store._upkeep.round()
        store._upkeep.retain()
        assert store.log_start > 0


def test_ends_whose_marks_the_disk_refuses_are_searched_for_at_the_next_start(
    tmp_path: Path,
) -> None:
    disk = Disk()
    with filled(tmp_path, 10, disk) as store:
        halves = HalfQueue(store, clock=ManualClock(NOON_MS))
        halves.restore(Recovered())
        prepare(halves, "A1")
        assert halves.marked_until() == store.log_end

        disk.used_percent = FILLS_THE_DISK
        store._upkeep.retain()
        (half,) = halves.halves.values()
        halves.end(half)
        assert halves.marked_until() is None

        disk.used_percent = FORCES_DELETION
        store._upkeep.retain()
        halves.store_marks()
        assert halves.marked_until() == store.log_end
