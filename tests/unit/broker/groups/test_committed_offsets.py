"""Committed offsets: who may lower them, resets, and the file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq import java_json
from orbitmq.broker.groups.committed_offsets import Commit, CommittedOffsets
from orbitmq.clock import ManualClock
from orbitmq.errors import ConfigFileError, OffsetRefusedError

# As RocketMQ 5.5.0 writes it.
JAVA_FILE = b"""{
\t"dataVersion":{
\t\t"counter":1,
\t\t"stateVersion":0,
\t\t"timestamp":1700000000123
\t},
\t"groupTopicMap":{
\t\t"g":[
\t\t\t"orders",
\t\t\t"%RETRY%g"
\t\t]
\t},
\t"offsetTable":{
\t\t"orders@g":{
\t\t\t0:12,
\t\t\t1:9
\t\t},
\t\t"%RETRY%g@g":{
\t\t\t0:3
\t\t}
\t},
\t"pullOffsetTable":{}
}"""
# As RocketMQ 4.9.7 writes it.
FILE_OF_4_9 = b"""{
\t"offsetTable":{
\t\t"%RETRY%g@g":{0:0
\t\t},
\t\t"T@g":{0:1,1:10,2:10,3:10
\t\t}
\t}
}"""


@pytest.fixture
def offsets(tmp_path: Path) -> CommittedOffsets:
    return CommittedOffsets(tmp_path, clock=ManualClock(), version_step=3, queues_max=5)


async def loaded(folder: Path) -> CommittedOffsets:
    offsets = CommittedOffsets(folder, clock=ManualClock())
    await offsets.load()
    return offsets


# --- who may lower one ------------------------------------------------------------------------


def test_anyone_may_raise_an_offset(offsets: CommittedOffsets) -> None:
    offsets.note_pull("g", "T", 0, "a")

    assert offsets.get("g", "T", 0) is None
    assert offsets.commit("g", "T", 0, 5) is Commit.ACCEPTED
    assert offsets.commit("g", "T", 0, 6, sender="a") is Commit.ACCEPTED
    assert offsets.commit("g", "T", 0, 7, sender="b") is Commit.ACCEPTED
    assert offsets.get("g", "T", 0) == 7


def test_where_a_queue_was_pulled_from_last_is_remembered(offsets: CommittedOffsets) -> None:
    offsets.note_pull("g", "T", 0, "a", 5)
    offsets.note_pull("g", "T", 0, "b", 9)

    assert offsets.pulled("g", "T", 0) == 9
    assert offsets.pulled("g", "T", 1) is None
    offsets.delete_group("g")
    assert offsets.pulled("g", "T", 0) is None


def test_a_late_member_cannot_lower_an_offset(offsets: CommittedOffsets) -> None:
    offsets.note_pull("g", "T", 0, "old")
    offsets.commit("g", "T", 0, 5, sender="old")
    offsets.note_pull("g", "T", 0, "new")
    offsets.commit("g", "T", 0, 9, sender="new")

    assert offsets.commit("g", "T", 0, 6, sender="old") is Commit.LATE

    assert offsets.get("g", "T", 0) == 9
    assert offsets.refused_commits == 1


@pytest.mark.parametrize("sender", [None, "new"])
def test_the_last_puller_and_unknown_connections_may_lower_it(
    offsets: CommittedOffsets, sender: str | None
) -> None:
    offsets.note_pull("g", "T", 0, "new")
    offsets.commit("g", "T", 0, 9, sender="new")

    assert offsets.commit("g", "T", 0, 6, sender=sender) is Commit.ACCEPTED

    assert offsets.get("g", "T", 0) == 6
    assert offsets.refused_commits == 0


def test_the_last_pulls_of_a_limited_number_of_queues_are_remembered(tmp_path: Path) -> None:
    offsets = CommittedOffsets(tmp_path, clock=ManualClock(), pulls_max=2)

    for queue_id in range(3):
        offsets.note_pull("g", "T", queue_id, "c", 7)
    offsets.note_pull("g", "T", 2, "c", 9)

    assert [offsets.pulled("g", "T", queue_id) for queue_id in range(3)] == [None, 7, 9]


def test_without_a_pull_any_member_may_lower_it(offsets: CommittedOffsets) -> None:
    offsets.commit("g", "T", 0, 9)
    offsets.note_pull("g", "T", 1, "other queue")
    offsets.note_pull("h", "T", 0, "other group")

    assert offsets.commit("g", "T", 0, 6, sender="a") is Commit.ACCEPTED


@pytest.mark.parametrize(("queue_id", "offset"), [(-1, 0), (2**31, 0), (0, -1), (0, 2**63)])
def test_an_invalid_queue_offset_is_refused(
    offsets: CommittedOffsets, queue_id: int, offset: int
) -> None:
    with pytest.raises(OffsetRefusedError):
        offsets.commit("g", "T", queue_id, offset)
    with pytest.raises(OffsetRefusedError):
        offsets.reset("g", "T", queue_id, offset)


def test_queues_are_bounded(offsets: CommittedOffsets) -> None:
    for queue_id in range(5):
        offsets.commit("g", "T", queue_id, 1)

    with pytest.raises(
        OffsetRefusedError, match="offsets of 5 queues, its limit; cannot add queue 5 of 'T'"
    ):
        offsets.commit("g", "T", 5, 1)
    offsets.commit("g", "T", 0, 2)
    offsets.delete_group("g")
    offsets.commit("g", "T", 5, 1)

    assert offsets.queues("g", "T") == {5: 1}


# --- resets -----------------------------------------------------------------------------------


def test_a_reset_is_reported_once_and_commits_are_ignored_until_then(
    offsets: CommittedOffsets,
) -> None:
    offsets.commit("g", "T", 0, 9)
    offsets.reset("g", "T", 0, 2)

    assert offsets.get("g", "T", 0) == 2
    assert offsets.commit("g", "T", 0, 10, sender="a") is Commit.RESET_PENDING
    assert offsets.commit("g", "T", 1, 4) is Commit.ACCEPTED
    assert offsets.take_reset("g", "T", 1) is None
    assert offsets.take_reset("g", "T", 0) == 2
    assert offsets.take_reset("g", "T", 0) is None
    assert offsets.commit("g", "T", 0, 3) is Commit.ACCEPTED
    assert offsets.get("g", "T", 0) == 3


def test_a_group_without_offsets_can_be_reset(offsets: CommittedOffsets) -> None:
    offsets.reset("g", "T", 0, 2)

    assert offsets.queues("g", "T") == {0: 2}


# --- administration ---------------------------------------------------------------------------


def test_offsets_are_listed_cloned_and_deleted(offsets: CommittedOffsets) -> None:
    offsets.commit("g", "T", 0, 1)
    offsets.commit("g", "U", 0, 2)
    offsets.clone("g", "h", "T")
    offsets.reset("g", "T", 0, 3)
    offsets.note_pull("g", "U", 0, "a")

    assert sorted(offsets.topics_of("g")) == ["T", "U"]
    assert sorted(offsets.groups_of("T")) == ["g", "h"]
    assert offsets.get("h", "T", 0) == 1

    offsets.delete_topic("T")
    assert offsets.groups_of("T") == []
    assert offsets.take_reset("g", "T", 0) is None
    assert offsets.topics_of("h") == []

    offsets.delete_group("g")
    assert offsets.topics_of("g") == []
    offsets.commit("g", "U", 0, 5)
    assert offsets.commit("g", "U", 0, 4, sender="b") is Commit.ACCEPTED
    assert offsets.table() == {"U@g": {0: 4}}


# --- the file ---------------------------------------------------------------------------------


async def test_a_file_of_rocketmq_is_loaded_and_written_back(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(JAVA_FILE)

    offsets = await loaded(tmp_path)
    offsets.commit("g", "orders", 0, 13)
    await offsets.save()

    assert offsets.get("g", "%RETRY%g", 0) == 3
    assert (
        (tmp_path / "consumerOffset.json")
        .read_bytes()
        .startswith(
            b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1700000000123},'
            b'"offsetTable":{"orders@g":{0:13,1:9},"%RETRY%g@g":{0:3}},"checksum":"'
        )
    )


async def test_a_file_of_4_9_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_bytes(FILE_OF_4_9)

    assert (await loaded(tmp_path)).queues("g", "T") == {0: 1, 1: 10, 2: 10, 3: 10}


async def test_keys_without_a_group_are_kept(tmp_path: Path) -> None:
    table = b'{"odd":{0:1},"a@b@c":{1:2}}'
    (tmp_path / "consumerOffset.json").write_bytes(b'{"offsetTable":%b}' % table)

    offsets = await loaded(tmp_path)
    offsets.commit("g", "T", 0, 1)
    await offsets.save()

    assert (await loaded(tmp_path)).table() == {"odd": {0: 1}, "a@b@c": {1: 2}, "T@g": {0: 1}}


async def test_unchanged_offsets_are_not_written(tmp_path: Path, offsets: CommittedOffsets) -> None:
    file = tmp_path / "consumerOffset.json"
    await offsets.save()
    assert not file.exists()

    offsets.commit("g", "T", 0, 1)
    await offsets.save()
    file.unlink()
    await offsets.save()
    assert not file.exists()

    offsets.delete_group("g")
    await offsets.save()
    assert java_json.decode(file.read_bytes(), dict)["offsetTable"] == {}


async def test_after_a_failed_write_the_next_save_writes(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    folder.write_text("a file where the folder should be")
    offsets = CommittedOffsets(folder, clock=ManualClock())
    offsets.commit("g", "T", 0, 1)

    with pytest.raises(ConfigFileError):
        await offsets.save()
    folder.unlink()
    await offsets.save()

    assert (await loaded(folder)).get("g", "T", 0) == 1


async def test_commits_during_a_save_are_saved_by_the_next(tmp_path: Path) -> None:
    offsets = await loaded(tmp_path)
    offsets.commit("g", "T", 0, 1)
    saving = asyncio.create_task(offsets.save())
    await asyncio.wait({saving}, timeout=0)
    offsets.commit("g", "T", 0, 2)
    await saving
    await offsets.save()

    assert (await loaded(tmp_path)).get("g", "T", 0) == 2


def test_the_version_grows_every_few_commits(offsets: CommittedOffsets) -> None:
    counters = []
    for offset in range(1, 7):
        offsets.commit("g", "T", 0, offset)
        counters.append(offsets.data_version.counter)

    assert counters == [0, 0, 1, 1, 1, 2]


NAMES = ["a", "b", "%RETRY%a"]
Key = tuple[str, str, int]
STEPS = ["commit", "reset", "take_reset", "delete_group", "delete_topic", "clone"]


class Expected:
    """A simple model of the table, without a file."""

    def __init__(self) -> None:
        self.offsets: dict[Key, int] = {}
        self.resets: dict[Key, int] = {}

    def step(self, what: str, key: Key, offset: int) -> None:
        group, topic, _ = key
        match what:
            case "commit" if key not in self.resets:
                self.offsets[key] = offset
            case "reset":
                self.offsets[key] = self.resets[key] = offset
            case "take_reset":
                self.resets.pop(key, None)
            case "delete_group" | "delete_topic":
                at, name = (0, group) if what == "delete_group" else (1, topic)
                self.offsets = {k: v for k, v in self.offsets.items() if k[at] != name}
                self.resets = {k: v for k, v in self.resets.items() if k[at] != name}
            case "clone":
                for queue_id in range(3):
                    if (source := (group, topic, queue_id)) in self.offsets:
                        self.offsets["a", topic, queue_id] = self.offsets[source]


def step(offsets: CommittedOffsets, what: str, key: Key, offset: int) -> None:
    group, topic, _ = key
    match what:
        case "commit":
            offsets.commit(*key, offset)
        case "reset":
            offsets.reset(*key, offset)
        case "take_reset":
            offsets.take_reset(*key)
        case "delete_group":
            offsets.delete_group(group)
        case "delete_topic":
            offsets.delete_topic(topic)
        case "clone":
            offsets.clone(group, "a", topic)


keys = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 2))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), keys, st.integers(0, 2**63 - 1)), max_size=40))
def test_any_history_survives_a_restart(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, Key, int]]
) -> None:
    folder = tmp_path_factory.mktemp("config")
    expected = Expected()

    async def run() -> tuple[CommittedOffsets, CommittedOffsets]:
        offsets = await loaded(folder)
        for what, key, offset in history:
            step(offsets, what, key, offset)
            expected.step(what, key, offset)
        await offsets.save()
        return offsets, await loaded(folder)

    before, after = asyncio.run(run())

    assert before.table() == after.table()
    assert expected.offsets == {
        (group, topic, queue_id): offset
        for group in NAMES
        for topic in after.topics_of(group)
        for queue_id, offset in after.queues(group, topic).items()
    }
    assert expected.resets == {
        (group, topic, queue_id): offset
        for group in NAMES
        for topic in NAMES
        for queue_id in range(3)
        if (offset := before.take_reset(group, topic, queue_id)) is not None
    }


async def test_a_file_of_half_a_million_queues_is_loaded(tmp_path: Path) -> None:
    queues = ",".join(f"{queue_id}:1234567" for queue_id in range(1000))
    topics = ",".join(f'"T{number}@g":{{{queues}}}' for number in range(500))
    (tmp_path / "consumerOffset.json").write_text(f'{{"offsetTable":{{{topics}}}}}')

    offsets = await loaded(tmp_path)

    assert len(offsets.topics_of("g")) == 500
    assert offsets.get("g", "T499", 999) == 1234567
