"""Attributes of topics: the known ones, and changes to them as text.

Changes set and remove attributes: `+message.type=FIFO,-cleanup.policy`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orbitmq.errors import TopicRefusedError
from orbitmq.model.topics import STORAGE, STORAGE_DISK, STORAGE_MEMORY

MESSAGE_TYPE: Final = "message.type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """The values that an attribute may have."""

    # The first is the default.
    values: tuple[str, ...]
    # Whether it cannot change after the topic was created.
    is_fixed: bool = False
    # Values of RocketMQ that this broker does not support.
    unsupported: tuple[str, ...] = ()


ATTRIBUTES: Final = {
    MESSAGE_TYPE: Attribute(
        values=("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED")
    ),
    "queue.type": Attribute(values=("SimpleCQ",), unsupported=("BatchCQ",), is_fixed=True),
    "cleanup.policy": Attribute(values=("DELETE",), unsupported=("COMPACTION",), is_fixed=True),
    # Compat: RocketMQ accepts other values only with its tiered storage.
    "reserve.time": Attribute(values=("-1",)),
    STORAGE: Attribute(values=(STORAGE_DISK, STORAGE_MEMORY), is_fixed=True),
}


def changed_attributes(current: dict[str, str] | None, changes: str) -> dict[str, str]:
    """Apply changes to the attributes of a topic; `current` is None for a new topic."""
    attributes = dict(current or {})
    seen = set()
    for change in filter(None, (part.strip() for part in changes.split(","))):
        name, equals, value = change[1:].partition("=")
        if name in seen:
            raise TopicRefusedError(f"attribute {name!r} is changed twice in {changes[:200]!r}")
        seen.add(name)
        match change[0], equals:
            case "+", "=":
                _check_set(name, value, current)
                attributes[name] = value
            case "-", "":
                _check_removed(name, current)
                del attributes[name]
            case _:
                raise TopicRefusedError(
                    f"invalid change of attributes {change[:60]!r}",
                    hint="write +name=value to set one, and -name to remove one",
                )
    return attributes


def _check_set(name: str, value: str, current: dict[str, str] | None) -> None:
    attribute = ATTRIBUTES.get(name)
    if attribute is None:
        raise TopicRefusedError(
            f"unknown topic attribute {name[:60]!r}", hint=f"known are {', '.join(ATTRIBUTES)}"
        )
    if value in attribute.unsupported:
        raise TopicRefusedError(f"{name}={value} is not supported here")
    if value not in attribute.values:
        raise TopicRefusedError(
            f"{name} cannot be {value[:60]!r}", hint=f"it takes {', '.join(attribute.values)}"
        )
    if current is not None and attribute.is_fixed:
        has = current.get(name, attribute.values[0])
        if has != value:
            raise _fixed(name, f"from {has} to {value}")


def _check_removed(name: str, current: dict[str, str] | None) -> None:
    if not current or name not in current:
        raise TopicRefusedError(f"the topic has no attribute {name[:60]!r} to remove")
    attribute = ATTRIBUTES.get(name)
    if attribute is not None and attribute.is_fixed and current[name] != attribute.values[0]:
        raise _fixed(name, f"from {current[name]} to nothing")


def _fixed(name: str, change: str) -> TopicRefusedError:
    return TopicRefusedError(
        f"{name} cannot change {change}: it is fixed when the topic is created",
        hint="create another topic",
    )
