"""The consumer groups of a broker by name, kept in `subscriptionGroup.json`.

File layout, JSON, as in RocketMQ:
    {"dataVersion": …, "forbiddenTable": {group: {topic: bits}}, "subscriptionGroupTable": {…}}

Threads: the event loop's. A read is a look-up in a dict. A change waits for the disk, and is not
visible before.
Crash: every group that was visible is on disk, or is made again by the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from orbitmq.broker.config_file import ConfigFile
from orbitmq.broker.table_bounds import TableBounds
from orbitmq.disk import PRIVATE, FileModes
from orbitmq.errors import GroupMissingError, GroupRefusedError, NameRuleError
from orbitmq.java_json import JavaInt
from orbitmq.model import names
from orbitmq.model.groups import GroupConfig
from orbitmq.model.versions import DataVersion

if TYPE_CHECKING:
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

V = TypeVar("V")

FILE_NAME: Final = "subscriptionGroup.json"
GROUPS_MAX: Final = 100_000
# Topics that groups may not read, of all groups together.
FORBIDDEN_MAX: Final = 100_000


class GroupsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `subscriptionGroup.json` holds."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion, name="dataVersion")
    # Bits of `Permission` by group and topic: what the group may not do with it.
    forbidden: dict[str, dict[str, JavaInt]] = msgspec.field(
        default_factory=dict, name="forbiddenTable"
    )
    groups: dict[str, GroupConfig] = msgspec.field(
        default_factory=dict, name="subscriptionGroupTable"
    )


class GroupTable:
    """All consumer groups of the broker."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        auto_create: bool = True,
        groups_max: int = GROUPS_MAX,
        modes: FileModes = PRIVATE,
    ) -> None:
        self._file = ConfigFile(folder / FILE_NAME, GroupsDocument(), modes)
        self._clock = clock
        self._auto_create = auto_create
        self._bounds = TableBounds("groups", groups_max, GroupRefusedError)
        self._listeners: list[Callable[[], None]] = []
        self._file.on_change = self._changed

    @property
    def is_found(self) -> bool:
        """Whether there was a file to load."""
        return self._file.is_found

    async def load(self) -> None:
        """Read the file, and create missing predefined groups."""
        await self._file.load()
        predefined = {name: GroupConfig(name=name) for name in names.PREDEFINED_GROUPS}

        def step(document: GroupsDocument) -> GroupsDocument:
            if predefined.keys() <= document.groups.keys():
                return document
            return msgspec.structs.replace(document, groups=predefined | document.groups)

        await self._file.complete(self._versioned(step))

    async def save(self) -> None:
        """Write what a full disk did not allow before."""
        await self._file.save()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a listener after each change, once it is on disk."""
        self._listeners.append(listener)

    def _changed(self, _old: GroupsDocument, _new: GroupsDocument) -> None:
        for listener in self._listeners:
            listener()

    @property
    def data_version(self) -> DataVersion:
        """The version of the table."""
        return self._file.document.data_version

    @property
    def groups(self) -> Mapping[str, GroupConfig]:
        """All groups by name; a later change does not modify this map."""
        return self._file.document.groups

    @property
    def forbidden(self) -> Mapping[str, Mapping[str, int]]:
        """By group and topic: forbidden operations, as bits of `Permission`."""
        return self._file.document.forbidden

    def forbidden_bits(self, group: str, topic: str) -> int:
        """What a group may not do with a topic; 0 if nothing is forbidden."""
        return max(0, self._file.document.forbidden.get(group, {}).get(topic, 0))

    def get(self, name: str) -> GroupConfig | None:
        """Look a group up."""
        return self._file.document.groups.get(name)

    def require(self, name: str) -> GroupConfig:
        """Look up a group that must exist."""
        group = self.get(name)
        if group is None:
            raise GroupMissingError(
                f"group {name[:255]!r} does not exist",
                hint="create it with: mqadmin updateSubGroup, or let its consumers create it",
            )
        return group

    def find(self, name: str) -> GroupConfig | None:
        """The group, or the one that its first consumer would create; None if neither."""
        group = self.get(name)
        if group is None and self._auto_create:
            try:
                names.check_group(name)
            except NameRuleError:
                return None
            return GroupConfig(name=name)
        return group

    async def ensure(self, *wanted: str) -> Sequence[GroupConfig]:
        """Create groups of consumers that are missing and may be created, with one write."""
        missing = [name for name in wanted if self.get(name) is None]
        for name in missing:
            names.check_group(name)
            if not self._auto_create:
                raise GroupMissingError(
                    f"group {name!r} does not exist, and autoCreateSubscriptionGroup is off",
                    hint="create it with: mqadmin updateSubGroup",
                )
        if missing:
            await self._change(
                lambda document: self._with(
                    document,
                    {
                        name: GroupConfig(name=name)
                        for name in missing
                        if name not in document.groups
                    },
                )
            )
        return [self.require(name) for name in wanted]

    async def put(self, group: GroupConfig) -> GroupConfig:
        """Create or change a group for an administrator; `attributes` are changes to them."""
        (put,) = await self.put_all([group])
        return put

    async def put_all(self, wanted: Sequence[GroupConfig]) -> Sequence[GroupConfig]:
        """Create or change groups with one write: all of them, or none if one is refused."""
        self._bounds.check_change(wanted)
        for group in wanted:
            _check(group)

        def step(document: GroupsDocument) -> GroupsDocument:
            changed: dict[str, GroupConfig] = {}
            for group in wanted:
                old = changed.get(group.name) or document.groups.get(group.name)
                new = msgspec.structs.replace(group, attributes=old.attributes if old else {})
                if new != old:
                    changed[group.name] = new
            return self._with(document, changed)

        await self._change(step)
        return [self.require(group.name) for group in wanted]

    async def follow(
        self,
        groups: Mapping[str, GroupConfig],
        forbidden: Mapping[str, Mapping[str, int]],
        version: DataVersion,
    ) -> None:
        """Replace all groups by those of a master; predefined ones that it lacks stay."""
        self._bounds.check_room(0, groups.keys())
        for name, group in groups.items():
            if name != group.name or not 0 < len(name) <= names.GROUP_TOPIC_LENGTH_MAX:
                raise GroupRefusedError(
                    f"group {group.name[:60]!r}, listed as {name[:60]!r}, cannot have this name"
                )
        count = sum(map(len, forbidden.values()))
        if count > FORBIDDEN_MAX:
            raise GroupRefusedError(
                f"groups are forbidden {count} topics, of at most {FORBIDDEN_MAX}"
            )
        denied = {group: dict(topics) for group, topics in forbidden.items()}

        def step(document: GroupsDocument) -> GroupsDocument:
            own = {
                name: group
                for name, group in document.groups.items()
                if name in names.PREDEFINED_GROUPS
            }
            followed = GroupsDocument(
                data_version=version, forbidden=denied, groups=own | dict(groups)
            )
            if followed == document:
                return document
            log.info("groups copied from the master count=%d", len(groups))
            return followed

        await self._file.change(step)

    async def delete(self, name: str) -> bool:
        """Delete a group; returns whether it existed."""
        deleted = False

        def step(document: GroupsDocument) -> GroupsDocument:
            nonlocal deleted
            deleted = name in document.groups
            if not deleted and name not in document.forbidden:
                return document
            return msgspec.structs.replace(
                document,
                groups=_without(document.groups, name),
                forbidden=_without(document.forbidden, name),
            )

        await self._change(step)
        return deleted

    async def forbid(self, group: str, topic: str, bits: int) -> None:
        """Set what a group may not do with a topic; 0 allows everything again."""
        names.check_group(group)
        names.check_topic(topic)

        def step(document: GroupsDocument) -> GroupsDocument:
            topics = document.forbidden.get(group, {})
            if topics.get(topic, 0) == bits:
                return document
            if topic not in topics and bits:
                self._check_forbidden_room(document)
            topics = topics | {topic: bits} if bits else _without(topics, topic)
            forbidden = _without(document.forbidden, group)
            return msgspec.structs.replace(
                document, forbidden=forbidden | {group: topics} if topics else forbidden
            )

        await self._change(step)

    def _check_forbidden_room(self, document: GroupsDocument) -> None:
        count = sum(map(len, document.forbidden.values()))
        if count >= FORBIDDEN_MAX:
            raise GroupRefusedError(
                f"the broker forbids groups {count} topics, its limit",
                hint="allow those that exist no more",
            )

    def _with(self, document: GroupsDocument, changed: dict[str, GroupConfig]) -> GroupsDocument:
        if not changed:
            return document
        groups = document.groups
        added = changed.keys() - groups.keys()
        self._bounds.check_room(len(groups), added)
        log.info(
            "groups saved names=%s count=%d new=%d", sorted(changed)[:20], len(changed), len(added)
        )
        return msgspec.structs.replace(document, groups=groups | changed)

    async def _change(self, step: Callable[[GroupsDocument], GroupsDocument]) -> None:
        await self._file.change(self._versioned(step))

    def _versioned(
        self, step: Callable[[GroupsDocument], GroupsDocument]
    ) -> Callable[[GroupsDocument], GroupsDocument]:
        def versioned(document: GroupsDocument) -> GroupsDocument:
            new = step(document)
            if new is document:
                return document
            version = document.data_version.next(self._clock.now_ms())
            return msgspec.structs.replace(new, data_version=version)

        return versioned


def _without(table: dict[str, V], name: str) -> dict[str, V]:
    return {other: value for other, value in table.items() if other != name}


def _check(group: GroupConfig) -> None:
    names.check_group(group.name)
    if group.attributes:
        # Compat: RocketMQ defines no group attributes yet, and refuses all.
        raise GroupRefusedError(
            f"groups have no attribute {next(iter(group.attributes))[:60]!r}",
            hint="leave the attributes empty",
        )
    if group.retry_queues < 0:
        raise GroupRefusedError(
            f"group {group.name!r} cannot have {group.retry_queues} retry queues"
        )
