"""The topics of a broker by name, kept in `topics.json`.

File layout, JSON: {"dataVersion": …, "topicConfigTable": {name: topic}}, as RocketMQ's

Threads: the event loop's. Reading is a look-up in a dict; what changes the table waits for the
disk, and nobody sees the change before.
Crash: a topic that somebody was told of is on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.broker.config_file import ConfigFile
from orbitmq.broker.topics.attributes import changed_attributes
from orbitmq.errors import TopicMissingError, TopicRefusedError
from orbitmq.model import names
from orbitmq.model.topics import Permission, TopicConfig
from orbitmq.model.versions import DataVersion

if TYPE_CHECKING:
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

FILE_NAME: Final = "topics.json"
QUEUES_MAX: Final = 65_536
_ALL_PERMISSIONS: Final = int(
    Permission.INHERIT | Permission.READ | Permission.WRITE | Permission.PRIORITY
)


class TopicsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `topics.json` holds."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion, name="dataVersion")
    topics: dict[str, TopicConfig] = msgspec.field(default_factory=dict, name="topicConfigTable")


# Told the names of topics that were made, changed or deleted.
Listener = Callable[[frozenset[str]], None]
_Topics = dict[str, TopicConfig]


class TopicTable:
    """Every topic that the broker has."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        system_topics: Iterable[TopicConfig] = (),
        auto_create: bool = True,
        topics_max: int = 100_000,
    ) -> None:
        self._file = ConfigFile(folder / FILE_NAME, TopicsDocument())
        self._clock = clock
        self._system_topics = {topic.name: topic for topic in system_topics}
        self._auto_create = auto_create
        self._topics_max = topics_max
        self._listeners: list[Listener] = []
        self._leaving: set[str] = set()
        self._file.on_change = self._changed

    async def load(self) -> None:
        """Read the file, and make the system topics that it lacks."""
        await self._file.load()
        await self._change(lambda topics: self._system_topics | topics)

    @property
    def data_version(self) -> DataVersion:
        """How new the table is."""
        return self._file.document.data_version

    @property
    def topics(self) -> Mapping[str, TopicConfig]:
        """Every topic by name; a later change makes another map and leaves this one alone."""
        return self._file.document.topics

    def get(self, name: str) -> TopicConfig | None:
        """Look a topic up."""
        return self._file.document.topics.get(name)

    def require(self, name: str) -> TopicConfig:
        """Look up a topic that must be there."""
        topic = self.get(name)
        if topic is None:
            raise TopicMissingError(
                f"topic {name[:255]!r} does not exist",
                hint="make it with: mqadmin updateTopic, or let senders make it",
            )
        return topic

    def is_system(self, name: str) -> bool:
        """Whether a topic is the broker's own, those named after cluster and broker included."""
        return name in self._system_topics or names.is_system_topic(name)

    def listen(self, listener: Listener) -> None:
        """Have changes told, each after it is on disk."""
        self._listeners.append(listener)

    async def put(self, topic: TopicConfig, changes: str = "") -> TopicConfig:
        """Make or change a topic as an administrator asks; `changes` are those of attributes."""
        _check(topic)
        self._check_not_system(topic.name)

        def step(topics: _Topics) -> _Topics:
            old = topics.get(topic.name)
            attributes = changed_attributes(old.attributes if old else None, changes)
            new = msgspec.structs.replace(topic, attributes=attributes)
            return topics if new == old else self._with(topics, new)

        await self._change(step)
        return self.require(topic.name)

    async def delete(
        self, name: str, *, clear: Callable[[], Awaitable[None]] | None = None
    ) -> bool:
        """Delete a topic, then `clear` what belongs to it; tells whether it was there.

        None of its name is made meanwhile: what a send stored in that would be cleared, too.
        """
        self._check_not_system(name)
        self._check_not_leaving(name)
        self._leaving.add(name)
        try:
            deleted = await self._delete(name)
            if clear is not None:
                await clear()
        finally:
            self._leaving.remove(name)
        return deleted

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
        """Make a topic for the broker's own use unless it is there."""
        found = self.get(topic.name)
        if found is not None:
            return found
        _check(topic)
        await self._change(
            lambda topics: topics if topic.name in topics else self._with(topics, topic)
        )
        return self.require(topic.name)

    async def ensure_for_send(
        self, name: str, *, template: str, queues: int, unit_flag: int = 0
    ) -> TopicConfig:
        """Make the topic that somebody sends to after a template, as RocketMQ's senders expect."""
        found = self.get(name)
        if found is not None:
            return found
        if names.is_retry_topic(name):
            return await self.ensure(_group_topic(name, 1, unit_flag=unit_flag))
        names.check_topic(name)
        pattern = self._template(name, template)
        queues = max(1, min(queues, pattern.write_queues))
        return await self.ensure(
            TopicConfig(
                name=name,
                read_queues=queues,
                write_queues=queues,
                permission=int(pattern.permission & ~Permission.INHERIT),
                filter_type=pattern.filter_type,
                unit_flag=unit_flag,
            )
        )

    async def ensure_retry(
        self, group: str, *, queues: int = 1, order: bool = False, unit_flag: int = 0
    ) -> TopicConfig:
        """Make the retry topic of a group; `order` tells that the group consumes in order."""
        topic = _group_topic(names.retry_topic(group), queues, order=order, unit_flag=unit_flag)
        found = await self.ensure(topic)
        if found.order != order:

            def step(topics: _Topics) -> _Topics:
                old = topics.get(topic.name, topic)
                return topics | {topic.name: msgspec.structs.replace(old, order=order)}

            await self._change(step)
            found = self.require(topic.name)
        return found

    async def ensure_dead_letter(self, group: str) -> TopicConfig:
        """Make the topic with the dead letters of a group."""
        return await self.ensure(_group_topic(names.dead_letter_topic(group), 1))

    def _template(self, name: str, template: str) -> TopicConfig:
        missing = f"topic {name[:255]!r} does not exist, and cannot be made:"
        hint = "make it with: mqadmin updateTopic"
        if template == names.TEMPLATE_TOPIC and not self._auto_create:
            raise TopicMissingError(f"{missing} autoCreateTopicEnable is off", hint=hint)
        pattern = self.get(template)
        if pattern is None:
            raise TopicMissingError(
                f"{missing} its template {template[:255]!r} does not exist", hint=hint
            )
        if not pattern.is_template:
            raise TopicMissingError(
                f"{missing} {template!r} is no template (permission {pattern.permission})",
                hint=hint,
            )
        return pattern

    def _check_not_system(self, name: str) -> None:
        if self.is_system(name):
            raise TopicRefusedError(
                f"{name!r} is a topic of the system", hint="choose another name"
            )

    def _check_not_leaving(self, name: str) -> None:
        if name in self._leaving:
            raise TopicMissingError(
                f"topic {name!r} is being deleted", hint="try again in a moment"
            )

    def _with(self, topics: _Topics, topic: TopicConfig) -> _Topics:
        self._check_not_leaving(topic.name)
        if topic.name not in topics and len(topics) >= self._topics_max:
            raise TopicRefusedError(
                f"the broker has {len(topics)} topics; {topic.name!r} is one too many",
                hint="delete topics that nobody uses",
            )
        return topics | {topic.name: topic}

    async def _change(self, step: Callable[[_Topics], _Topics]) -> None:
        def whole(document: TopicsDocument) -> TopicsDocument:
            topics = step(document.topics)
            if len(topics) == len(document.topics) and topics == document.topics:
                return document
            version = document.data_version.next(self._clock.now_ms())
            return TopicsDocument(data_version=version, topics=topics)

        await self._file.change(whole)

    def _changed(self, old: TopicsDocument, new: TopicsDocument) -> None:
        changed = frozenset(
            name
            for name in old.topics.keys() | new.topics.keys()
            if old.topics.get(name) is not new.topics.get(name)
        )
        log.info("topics changed names=%s count=%d", sorted(changed)[:20], len(changed))
        for listener in self._listeners:
            try:
                listener(changed)
            except Exception:
                # The change is made and on disk; who asked for it must be told so.
                log.exception("a listener failed topics=%s", sorted(changed)[:20])


def _group_topic(name: str, queues: int, *, order: bool = False, unit_flag: int = 0) -> TopicConfig:
    return TopicConfig(
        name=name,
        read_queues=queues,
        write_queues=queues,
        permission=int(Permission.READ | Permission.WRITE),
        order=order,
        unit_flag=unit_flag,
    )


def _check(topic: TopicConfig) -> None:
    names.check_topic(topic.name)
    for kind, queues in (("read", topic.read_queues), ("write", topic.write_queues)):
        if not 0 <= queues <= QUEUES_MAX:
            raise TopicRefusedError(
                f"topic {topic.name!r} cannot have {queues} {kind} queues",
                hint=f"0 to {QUEUES_MAX} are possible",
            )
    if not 0 <= topic.permission <= _ALL_PERMISSIONS:
        raise TopicRefusedError(
            f"topic {topic.name!r} cannot have permission {topic.permission}",
            hint="2 is to write, 4 to read, 6 both, and 1 more makes it a template",
        )
