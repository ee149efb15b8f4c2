"""Allocation: which queues of a topic each member of a group takes.

Every member decides alone. They agree because each calls the same function with the same sorted
input: queues by topic, broker name and id, members by client id, strings compared by UTF-16 units.
Compat: Java members do the same. Each function returns exactly what its counterpart in Java's
client returns, so a group may contain both.

Any function that takes `(group, client_id, queues, client_ids)` is an allocation too.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from orbitmq.errors import SettingsError
from orbitmq.model.queues import MessageQueue

T = TypeVar("T")

VIRTUAL_NODES: Final = 10

_ROOM_SEPARATOR: Final = "@"


class Allocation(Protocol):
    """Chooses the queues of one member from all queues of a topic."""

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
        /,
    ) -> Sequence[MessageQueue]:
        """Return the queues of `client_id`, which may be missing from `client_ids`."""


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Sort queues as every member does."""
    return sorted(
        queues,
        key=lambda queue: (_utf16(queue.topic), _utf16(queue.broker_name), queue.queue_id),
    )


def sorted_client_ids(client_ids: Iterable[str]) -> list[str]:
    """Sort client ids as every member does."""
    return sorted(client_ids, key=_utf16)


def allocation_name(allocation: Allocation) -> str:
    """Return the name of an allocation, for logs."""
    return str(getattr(allocation, "__name__", type(allocation).__name__))


def averagely(
    _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
) -> list[MessageQueue]:
    """Give each member a contiguous run of queues; the first members take the remainder."""
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    each, left = divmod(len(queues), len(client_ids))
    start = index * each + min(index, left)
    return list(queues[start : start + each + (index < left)])


def averagely_by_circle(
    _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
) -> list[MessageQueue]:
    """Deal the queues out in turn, like cards."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def by_config(own: Collection[MessageQueue]) -> Allocation:
    """Take exactly these queues, whatever the other members take."""
    chosen = list(own)

    def by_config(
        _group: str, _client_id: str, _queues: Sequence[MessageQueue], _ids: Sequence[str], /
    ) -> list[MessageQueue]:
        return list(chosen)

    return by_config


def by_machine_room(rooms: Collection[str]) -> Allocation:
    """Share the queues of brokers named `<room>@<name>`, for these rooms only."""
    wanted_rooms = frozenset(rooms)

    def by_machine_room(
        _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        near = [queue for queue in queues if _room_of(queue.broker_name) in wanted_rooms]
        index = client_ids.index(client_id)
        each, left = divmod(len(near), len(client_ids))
        own = near[index * each : (index + 1) * each]
        # Compat: the remainder comes from the end, unlike with `averagely`.
        return own + near[len(near) - left :][index : index + 1]

    return by_machine_room


def machine_room_nearby(
    allocation: Allocation,
    *,
    room_of_queue: Callable[[MessageQueue], str],
    room_of_client: Callable[[str], str],
) -> Allocation:
    """Share the queues of a room among its members; all members share those of an empty room."""

    def machine_room_nearby(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        queues_by_room = _by_room(queues, room_of_queue)
        clients_by_room = _by_room(client_ids, room_of_client)
        own_room = room_of_client(client_id)
        own: list[MessageQueue] = []
        if near := queues_by_room.pop(own_room, None):
            own += allocation(group, client_id, near, clients_by_room[own_room])
        for room in sorted(queues_by_room, key=_utf16):
            if room not in clients_by_room:
                own += allocation(group, client_id, queues_by_room[room], client_ids)
        return own

    return machine_room_nearby


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES) -> Allocation:
    """Put each member on a hash ring several times, so that few queues move when members change."""
    if virtual_nodes < 1:
        raise SettingsError(
            f"a member cannot have {virtual_nodes} virtual nodes", hint="use 1 or more"
        )

    def consistent_hash(
        _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        # Compat: if two members have the same position, the later one gets it.
        ring = {
            _place(f"{member}-{number}"): member
            for member in client_ids
            for number in range(virtual_nodes)
        }
        places = sorted(ring)
        return [
            queue
            for queue in queues
            if ring[places[bisect_left(places, _place(_text(queue))) % len(places)]] == client_id
        ]

    return consistent_hash


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _room_of(broker_name: str) -> str | None:
    # Compat: Java splits at each separator and drops empty strings at the end.
    parts = broker_name.rstrip(_ROOM_SEPARATOR).split(_ROOM_SEPARATOR)
    return parts[0] if len(parts) == 2 else None


def _by_room(found: Sequence[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for one in found:
        if not (room := room_of(one)):
            raise SettingsError(
                f"no machine room is known for {one!r}",
                hint="room_of_queue and room_of_client must return a room for each",
            )
        rooms.setdefault(room, []).append(one)
    return rooms


def _place(key: str) -> int:
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4])


def _text(queue: MessageQueue) -> str:
    # Compat: MessageQueue.toString() of Java, which its client hashes.
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )
