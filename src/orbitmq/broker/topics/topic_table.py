"""The topics of a broker by name, kept in `topics.json`.

File layout, JSON: {"dataVersion": …, "topicConfigTable": {name: topic}}, as in RocketMQ

Threads: the event loop's. A read is a look-up in a dict. A change waits for the disk, and is not
visible before.
Crash: every topic that was visible is on disk, or is made again by the next start.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.broker.config_file import ConfigFile
from orbitmq.broker.table_bounds import TableBounds
from orbitmq.broker.topics.attributes import changed_attributes
from orbitmq.disk import PRIVATE, FileModes
from orbitmq.errors import TopicMissingError, TopicRefusedError
from orbitmq.model import names
from orbitmq.model.topics import Permission, TopicConfig
from orbitmq.model.versions import DataVersion

if TYPE_CHECKING:
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

FILE_NAME: Final = "topics.json"
TOPICS_MAX: Final = 100_000
QUEUES_MAX: Final = 65_536
# Of all topics: one that has had a message takes about 1.5 KB of memory, and a file, for good.
TOTAL_QUEUES_MAX: Final = 1_000_000
# Perf: all topics are counted only for one with more queues; smaller ones cannot exceed the limit.
_FEW_QUEUES: Final = 8
_ALL_PERMISSIONS: Final = int(
    Permission.INHERIT | Permission.READ | Permission.WRITE | Permission.PRIORITY
)
# Compat: Java brokers do not check the names of topics of their own, such as that of the broker.
_SAFE_NAME: Final = re.compile(rf"[^/\0]{{1,{names.GROUP_TOPIC_LENGTH_MAX}}}")


class TopicsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `topics.json` holds."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion, name="dataVersion")
    topics: dict[str, TopicConfig] = msgspec.field(default_factory=dict, name="topicConfigTable")


# Called with the names of topics that were created, changed or deleted.
Listener = Callable[[frozenset[str]], None]
_Topics = dict[str, TopicConfig]


class TopicTable:
    """All topics of the broker."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        system_topics: Iterable[TopicConfig] = (),
        auto_create: bool = True,
        topics_max: int = TOPICS_MAX,
        queues_max: int = TOTAL_QUEUES_MAX,
        modes: FileModes = PRIVATE,
    ) -> None:
        self._file = ConfigFile(folder / FILE_NAME, TopicsDocument(), modes)
        self._clock = clock
        self._system_topics = {topic.name: topic for topic in system_topics}
        self._auto_create = auto_create
        self._bounds = TableBounds("topics", topics_max, TopicRefusedError)
        self._queues_max = queues_max
        self._listeners: list[Listener] = []
        self._deleting: set[str] = set()
        # Set while no topic is being deleted.
        self._all_deleted = asyncio.Event()
        self._all_deleted.set()
        self._file.on_change = self._changed

    async def load(self, recover: Callable[[_Topics], _Topics] = lambda _: {}) -> None:
        """Read the file, and create missing system topics.

        If the file is damaged or missing, `recover` gets the topics that are known, and returns those
        to add or change.
        """
        await self._file.load()
        recovered: _Topics = {}
        if not self._file.is_current:
            recovered = recover(self._file.document.topics)
        own = self._system_topics
        added = {name: topic for name, topic in recovered.items() if name not in own}
        await self._file.complete(self._versioned(lambda topics: own | topics | added))

    async def add_recovered(self, topics: Mapping[str, TopicConfig]) -> None:
        """Add or replace topics that messages show; system topics stay."""
        added = {name: topic for name, topic in topics.items() if name not in self._system_topics}
        await self._change(lambda known: known | added)

    async def save(self) -> None:
        """Write what a full disk did not allow before."""
        await self._file.save()

    @property
    def data_version(self) -> DataVersion:
        """The version of the table."""
        return self._file.document.data_version

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """All topics by name; a later change does not modify this map."""
        return self._file.document.topics

    def get(self, name: str) -> TopicConfig | None:
        """Look a topic up."""
        return self._file.document.topics.get(name)

    def require(self, name: str) -> TopicConfig:
        """Look up a topic that must exist."""
        topic = self.get(name)
        if topic is None:
            raise TopicMissingError(
                f"topic {name[:255]!r} does not exist",
                hint="create it with: mqadmin updateTopic, or let senders create it",
            )
        return topic

    def is_system(self, name: str) -> bool:
        """Whether it is a system topic; those named after cluster and broker are, too."""
        return name in self._system_topics or names.is_system_topic(name)

    def listen(self, listener: Listener) -> None:
        """Call a listener for each change, once it is on disk."""
        self._listeners.append(listener)

    async def put(self, topic: TopicConfig, changes: str = "") -> TopicConfig:
        """Create or change a topic for an administrator; `changes` are those of attributes."""
        (put,) = await self.put_all([topic], changes)
        return put

    async def put_all(
        self, wanted: Sequence[TopicConfig], changes: str = ""
    ) -> Sequence[TopicConfig]:
        """Create or change topics with one write: all of them, or none if one is refused."""
        self._bounds.check_change(wanted)
        for topic in wanted:
            _check(topic)
            self._check_not_system(topic.name)

        def step(topics: _Topics) -> _Topics:
            changed: _Topics = {}
            for topic in wanted:
                old = changed.get(topic.name) or topics.get(topic.name)
                attributes = changed_attributes(old.attributes if old else None, changes)
                new = msgspec.structs.replace(topic, attributes=attributes)
                if new != old:
                    changed[topic.name] = new
            return self._with(topics, changed)

        await self._change(step)
        return [self.require(topic.name) for topic in wanted]

    async def raise_version(self) -> None:
        """Give the table a new version: what is reported of the topics changed, not they."""

        def step(document: TopicsDocument) -> TopicsDocument:
            version = document.data_version.next(self._clock.now_ms())
            return TopicsDocument(data_version=version, topics=document.topics)

        await self._file.change(step)

    async def follow(self, topics: Mapping[str, TopicConfig], version: DataVersion | None) -> None:
        """Replace all topics by those of a master; system topics that it lacks stay.

        The version becomes the master's, or stays what it was with None: then the two differ.
        """
        self.check_copied(topics)

        def step(document: TopicsDocument) -> TopicsDocument:
            old = document.topics
            own = {name: topic for name, topic in old.items() if self.is_system(name)}
            # What did not change stays the same object, so that listeners are not called for it.
            new = own | {
                name: old[name] if topic == old.get(name) else topic
                for name, topic in topics.items()
            }
            followed = TopicsDocument(data_version=version or document.data_version, topics=new)
            return document if followed == document else followed

        await self._file.change(step)

    def check_copied(self, topics: Mapping[str, TopicConfig]) -> None:
        """Refuse a table that this broker could not hold; names are only safe as those of files."""
        self._bounds.check_room(0, topics.keys())
        for name, topic in topics.items():
            if name != topic.name or not _SAFE_NAME.fullmatch(name) or name in {".", ".."}:
                raise TopicRefusedError(
                    f"topic {topic.name[:60]!r}, listed as {name[:60]!r}, cannot have this name"
                )
            _check_numbers(topic)
        total = sum(map(_queues, topics.values()))
        if total > self._queues_max:
            raise TopicRefusedError(
                f"all topics together have {total} queues, of at most {self._queues_max}"
            )

    async def delete(
        self, name: str, *, clear: Callable[[], Awaitable[None]] | None = None
    ) -> bool:
        """Delete a topic, then `clear` what belongs to it; returns whether it existed.

        It cannot be created again meanwhile: messages sent to it would be cleared, too.
        """
        self._check_not_system(name)
        self._check_not_deleting(name)
        self._deleting.add(name)
        self._all_deleted.clear()
        try:
            deleted = await self._delete(name)
            if clear is not None:
                await clear()
        finally:
            self._deleting.remove(name)
            if not self._deleting:
                self._all_deleted.set()
        return deleted

    async def until_deleted(self) -> None:
        """Return once what belongs to the topics that left the table is deleted, too."""
        await self._all_deleted.wait()

    async def _delete(self, name: str) -> bool:
        deleted = False

        def step(topics: _Topics) -> _Topics:
            nonlocal deleted
            deleted = name in topics
            return (
                {other: topics[other] for other in topics if other != name} if deleted else topics
            )

        await self._change(step)
        return deleted

    async def ensure(self, topic: TopicConfig) -> TopicConfig:
        """Create a topic for the broker's own use, if it is missing."""
        found = self.get(topic.name)
        if found is not None:
            return found
        _check(topic)
        await self._change(
            lambda topics: (
                topics if topic.name in topics else self._with(topics, {topic.name: topic})
            )
        )
        return self.require(topic.name)

    async def ensure_for_send(
        self, name: str, *, template: str, queues: int, unit_flag: int = 0
    ) -> TopicConfig:
        """Create the topic of a send from a template, as RocketMQ's producers expect."""
        found = self.get(name)
        if found is not None:
            return found
        if names.is_retry_topic(name):
            return await self.ensure(_group_topic(name, 1, unit_flag=unit_flag))
        names.check_topic(name)
        template_topic = self._template(name, template)
        queues = max(1, min(queues, template_topic.write_queues))
        return await self.ensure(
            TopicConfig(
                name=name,
                read_queues=queues,
                write_queues=queues,
                permission=int(template_topic.permission & ~Permission.INHERIT),
                filter_type=template_topic.filter_type,
                unit_flag=unit_flag,
            )
        )

    async def ensure_retry(
        self, group: str, *, queues: int = 1, order: bool = False, unit_flag: int = 0
    ) -> TopicConfig:
        """Create the retry topic of a group; `order` means that the group consumes in order."""
        topic = retry_topic_of(group, queues=queues, order=order, unit_flag=unit_flag)
        await self.ensure_retries([topic])
        return self.require(topic.name)

    async def ensure_retries(self, wanted: Sequence[TopicConfig]) -> None:
        """Create retry topics with one write, and note which groups consume in order."""

        def step(topics: _Topics) -> _Topics:
            changed: _Topics = {}
            for topic in wanted:
                old = topics.get(topic.name)
                if old is None:
                    _check(topic)
                    changed[topic.name] = topic
                elif old.order != topic.order:
                    changed[topic.name] = msgspec.structs.replace(old, order=topic.order)
            return self._with(topics, changed)

        if step(self._file.document.topics) is not self._file.document.topics:
            await self._change(step)

    async def ensure_dead_letter(self, group: str) -> TopicConfig:
        """Create the dead-letter topic of a group."""
        return await self.ensure(_group_topic(names.dead_letter_topic(group), 1))

    def _template(self, name: str, template: str) -> TopicConfig:
        missing = f"topic {name[:255]!r} does not exist, and cannot be created:"
        hint = "create it with: mqadmin updateTopic"
        if template == names.TEMPLATE_TOPIC and not self._auto_create:
            raise TopicMissingError(f"{missing} autoCreateTopicEnable is off", hint=hint)
        template_topic = self.get(template)
        if template_topic is None:
            raise TopicMissingError(
                f"{missing} its template {template[:255]!r} does not exist", hint=hint
            )
        if not template_topic.is_template:
            raise TopicMissingError(
                f"{missing} {template!r} is not a template (permission {template_topic.permission})",
                hint=hint,
            )
        return template_topic

    def _check_not_system(self, name: str) -> None:
        if self.is_system(name):
            raise TopicRefusedError(f"{name!r} is a system topic", hint="choose another name")

    def _check_not_deleting(self, name: str) -> None:
        if name in self._deleting:
            raise TopicMissingError(
                f"topic {name!r} is being deleted", hint="try again in a moment"
            )

    def _with(self, topics: _Topics, changed: _Topics) -> _Topics:
        for name in changed:
            self._check_not_deleting(name)
        self._bounds.check_room(len(topics), changed.keys() - topics.keys())
        self._check_queues(topics, changed)
        return topics | changed if changed else topics

    def _check_queues(self, topics: _Topics, changed: _Topics) -> None:
        grown = [
            topic
            for name, topic in changed.items()
            if _queues(topic) > max(_FEW_QUEUES, _queues(topics.get(name)))
        ]
        if not grown:
            return
        total = sum(map(_queues, (topics | changed).values()))
        if total > self._queues_max:
            raise TopicRefusedError(
                f"all topics together would have {total} queues, of at most {self._queues_max}; "
                f"cannot add those of {min(topic.name for topic in grown)!r}",
                hint="choose fewer queues, or delete unused topics",
            )

    async def _change(self, step: Callable[[_Topics], _Topics]) -> None:
        await self._file.change(self._versioned(step))

    def _versioned(
        self, step: Callable[[_Topics], _Topics]
    ) -> Callable[[TopicsDocument], TopicsDocument]:
        def changed(document: TopicsDocument) -> TopicsDocument:
            topics = step(document.topics)
            if len(topics) == len(document.topics) and topics == document.topics:
                return document
            version = document.data_version.next(self._clock.now_ms())
            return TopicsDocument(data_version=version, topics=topics)

        return changed

    def _changed(self, old: TopicsDocument, new: TopicsDocument) -> None:
        changed = frozenset(
            name
            for name in old.topics.keys() | new.topics.keys()
            if old.topics.get(name) is not new.topics.get(name)
        )
        if changed:
            log.info("topics changed names=%s count=%d", sorted(changed)[:20], len(changed))
        for listener in self._listeners:
            try:
                listener(changed)
            except Exception:
                # The change is on disk, so its caller must still see success.
                log.exception("topic listener failed topics=%s", sorted(changed)[:20])


def retry_topic_of(
    group: str, *, queues: int = 1, order: bool = False, unit_flag: int = 0
) -> TopicConfig:
    """The retry topic of a group."""
    return _group_topic(names.retry_topic(group), queues, order=order, unit_flag=unit_flag)


def _group_topic(name: str, queues: int, *, order: bool = False, unit_flag: int = 0) -> TopicConfig:
    return TopicConfig(
        name=name,
        read_queues=queues,
        write_queues=queues,
        permission=int(Permission.READ | Permission.WRITE),
        order=order,
        unit_flag=unit_flag,
    )


def _queues(topic: TopicConfig | None) -> int:
    return max(topic.read_queues, topic.write_queues) if topic is not None else 0


def _check(topic: TopicConfig) -> None:
    names.check_topic(topic.name)
    _check_numbers(topic)


def _check_numbers(topic: TopicConfig) -> None:
    for kind, queues in (("read", topic.read_queues), ("write", topic.write_queues)):
        if not 0 <= queues <= QUEUES_MAX:
            raise TopicRefusedError(
                f"topic {topic.name!r} cannot have {queues} {kind} queues",
                hint=f"use 0 to {QUEUES_MAX}",
            )
    if not 0 <= topic.permission <= _ALL_PERMISSIONS:
        raise TopicRefusedError(
            f"topic {topic.name!r} cannot have permission {topic.permission}",
            hint="2 writes, 4 reads, 6 does both; add 1 for a template",
        )
