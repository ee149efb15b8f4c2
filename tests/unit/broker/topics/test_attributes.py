"""Changes to a topic's attributes."""

from __future__ import annotations

import pytest

from orbitmq.broker.topics.attributes import changed_attributes
from orbitmq.errors import TopicRefusedError
from orbitmq.model.topics import TopicConfig


def test_attributes_are_set_changed_and_removed() -> None:
    made = changed_attributes(None, "+message.type=FIFO,+orbitmq.storage=memory")

    assert made == {"message.type": "FIFO", "orbitmq.storage": "memory"}
    assert changed_attributes(made, "+message.type=DELAY") == made | {"message.type": "DELAY"}
    assert changed_attributes(made, "-message.type") == {"orbitmq.storage": "memory"}
    assert changed_attributes(made, "") == made


def test_an_attribute_keeps_a_topic_in_memory() -> None:
    assert TopicConfig(name="a", attributes={"orbitmq.storage": "memory"}).is_in_memory
    assert not TopicConfig(name="a").is_in_memory


def test_the_given_attributes_are_not_modified() -> None:
    current = {"message.type": "FIFO"}

    changed_attributes(current, "-message.type")

    assert current == {"message.type": "FIFO"}


@pytest.mark.parametrize(
    ("current", "changes", "told"),
    [
        (
            None,
            "+colour=red",
            r"unknown topic attribute 'colour' \(known are message.type, queue.type",
        ),
        (None, "+message.type=QUICK", r"cannot be 'QUICK' \(it takes NORMAL, FIFO"),
        (None, "+message.type=", "cannot be ''"),
        (None, "message.type=FIFO", r"invalid change .*write \+name=value"),
        (None, "+message.type", "invalid change"),
        ({"message.type": "FIFO"}, "-message.type=FIFO", "invalid change"),
        (None, "+message.type=FIFO,+message.type=DELAY", "changed twice"),
        (None, "-message.type", "no attribute 'message.type' to remove"),
        ({}, "-message.type", "to remove"),
        (None, "+queue.type=BatchCQ", "queue.type=BatchCQ is not supported here"),
        (None, "+cleanup.policy=COMPACTION", "is not supported here"),
        (None, "+reserve.time=100", "reserve.time cannot be '100'"),
        ({}, "+orbitmq.storage=memory", "cannot change from disk to memory: it is fixed"),
        ({"orbitmq.storage": "memory"}, "+orbitmq.storage=disk", "from memory to disk"),
        ({"orbitmq.storage": "memory"}, "-orbitmq.storage", "from memory to nothing"),
    ],
)
def test_other_changes_are_refused(current: dict[str, str] | None, changes: str, told: str) -> None:
    with pytest.raises(TopicRefusedError, match=told):
        changed_attributes(current, changes)


def test_a_fixed_attribute_may_be_set_to_its_current_value() -> None:
    assert changed_attributes({}, "+orbitmq.storage=disk") == {"orbitmq.storage": "disk"}
    assert changed_attributes({"queue.type": "SimpleCQ"}, "-queue.type") == {}


def test_an_unknown_attribute_of_another_broker_can_be_removed() -> None:
    assert changed_attributes({"later": "x"}, "-later") == {}
