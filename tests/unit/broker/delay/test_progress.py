"""Progress of the delay queues: its file, in RocketMQ's format."""

from __future__ import annotations

import json
from pathlib import Path

from orbitmq import java_json
from orbitmq.broker.delay.progress import FILE_NAME, DelayDocument, DelayProgress
from orbitmq.clock import ManualClock
from orbitmq.model.queues import QueueOffset
from orbitmq.model.versions import DataVersion


async def loaded(folder: Path) -> DelayProgress:
    progress = DelayProgress(folder, clock=ManualClock())
    await progress.load()
    return progress


async def test_levels_resume_where_they_were_saved(tmp_path: Path) -> None:
    progress = await loaded(tmp_path)
    assert progress.offset(3) == 0

    await progress.save({1: QueueOffset(5), 3: QueueOffset(7)})
    await progress.save({1: QueueOffset(6)})

    again = await loaded(tmp_path)
    assert [again.offset(level) for level in (1, 2, 3)] == [6, 0, 7]


async def test_a_file_of_rocketmq_with_unquoted_number_keys_is_read(
    tmp_path: Path,
) -> None:
    (tmp_path / FILE_NAME).write_text(
        '{"dataVersion":{"counter":4,"stateVersion":0,"timestamp":1},"offsetTable":{1:12,18:3}}'
    )

    progress = await loaded(tmp_path)

    assert (progress.offset(1), progress.offset(18)) == (12, 3)


async def test_saving_unchanged_offsets_writes_nothing(tmp_path: Path) -> None:
    progress = await loaded(tmp_path)
    await progress.save({1: QueueOffset(5)})
    before = (tmp_path / FILE_NAME).read_bytes()

    await progress.save({1: QueueOffset(5)})

    assert (tmp_path / FILE_NAME).read_bytes() == before
    document = json.loads(java_json.to_standard(before))
    assert document["offsetTable"] == {"1": 5}
    assert document["dataVersion"]["counter"] == 1


async def test_a_slave_has_exactly_what_its_master_has(tmp_path: Path) -> None:
    progress = await loaded(tmp_path)
    await progress.save({1: QueueOffset(5), 3: QueueOffset(7)})
    of_master = DelayDocument(
        data_version=DataVersion(counter=4, state_version=1, timestamp=2), offsets={1: 4, 2: 9}
    )

    await progress.follow(of_master)

    again = await loaded(tmp_path)
    assert [again.offset(level) for level in (1, 2, 3)] == [4, 9, 0]
    assert again.document({}) == of_master


async def test_a_master_tells_what_it_has_not_saved_yet(tmp_path: Path) -> None:
    progress = await loaded(tmp_path)
    await progress.save({1: QueueOffset(5), 3: QueueOffset(7)})

    document = progress.document({1: QueueOffset(6)})

    assert document.offsets == {1: 6, 3: 7}
    assert progress.offset(1) == 5
