"""Queue selectors: functions that choose the queue of a message by an argument.

A selector gets the queues of the topic that accept messages, the message, and the argument of the
send, and returns one of the queues. Messages with the same argument keep their order as long as the
queues stay the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from orbitmq.errors import MessageError, NoQueueError
from orbitmq.java_hash import java_hash

if TYPE_CHECKING:
    from orbitmq.model.messages import Message
    from orbitmq.model.queues import MessageQueue

Selector = Callable[[Sequence["MessageQueue"], "Message", Any], "MessageQueue"]


def by_hash(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
    """Choose by the hash of the argument, or else of the message's sharding key.

    Texts and whole numbers hash as in Java, so that Java producers choose the same queue.
    """
    if argument is None:
        argument = message.sharding_key
        if not argument:
            raise MessageError(
                f"nothing to choose a queue of topic {message.topic!r} by",
                hint="give the send an argument, or the message a sharding_key",
            )
    return queue_by_hash(queues, argument)


def queue_by_hash(queues: Sequence[MessageQueue], argument: Any) -> MessageQueue:
    """Return the queue that `by_hash` chooses for an argument."""
    # Compat: Java takes the remainder first and drops the sign afterwards.
    return queues[abs(_remainder(_hash(argument), len(queues)))]


def at_random(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:  # noqa: ARG001  # the form of a selector
    """Choose any queue."""
    return random.choice(queues)  # noqa: S311  # any queue will do


def by_machine_room(*rooms: str) -> Selector:
    """Choose any queue of a broker in one of the rooms; a broker's name begins with `room@`."""
    if not rooms:
        raise MessageError("no machine room to choose from", hint="name at least one")

    def in_rooms(
        queues: Sequence[MessageQueue],
        message: Message,
        argument: Any,  # noqa: ARG001  # the form of a selector
    ) -> MessageQueue:
        inside = [queue for queue in queues if _room(queue.broker_name) in rooms]
        if not inside:
            seen = sorted({_room(queue.broker_name) for queue in queues})
            raise NoQueueError(
                f"topic {message.topic!r} has no queue in machine room {_listed(rooms)}; "
                f"its rooms are {_listed(seen)}",
                hint="name another room, or add a broker whose name begins with the room and @",
            )
        return random.choice(inside)  # noqa: S311  # any of them will do

    return in_rooms


def _room(broker_name: str) -> str:
    room, mark, _ = broker_name.partition("@")
    return room if mark else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _hash(argument: Any) -> int:
    if isinstance(argument, str):
        return java_hash(argument)
    if isinstance(argument, bool):
        return 1231 if argument else 1237
    if isinstance(argument, int):
        if -(2**31) <= argument < 2**31:
            return argument
        if -(2**63) <= argument < 2**63:
            # As Java's Long.hashCode: both halves folded into one.
            folded = (argument ^ (argument >> 32)) & 0xFFFFFFFF
            return (folded ^ 0x80000000) - 0x80000000
    raise MessageError(
        f"cannot choose a queue by the hash of {argument!r} of type {type(argument).__name__}",
        hint="use a str, or an int of at most 64 bits",
    )


def _remainder(value: int, count: int) -> int:
    """Return the remainder as Java does, with the sign of the value."""
    return value % count if value >= 0 else -(-value % count)
