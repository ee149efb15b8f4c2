"""Committed offsets: the next offset of each group in each queue, kept in a file.

File layout of `consumerOffset.json`, as RocketMQ writes it:
    {"dataVersion": …, "offsetTable": {"<topic>@<group>": {<queue id>: <next offset>}}}

A member may not lower a committed offset if another member pulled the queue last: it is late, and
is refused. A sender that is not a known member (an admin tool, or a connection without heartbeats)
may always do so. Nobody commits an offset above the end of a queue: it would skip the messages that
are stored there next. A file may hold such offsets after a crash that lost the end of the log; they
are lowered before messages are stored again.

A slave takes the offsets of its master. It remembers what clients commit at the slave itself, until
the master has it: only that may be above the master's offsets, and the file has it, too.

A reset moves a group from outside. Its members learn of it once, from a held pull or the next one.
Commits that arrive before that are from before the reset, and are ignored.

Threads: the event loop's; `save` writes off it.
Crash: commits since the last `save` are lost, and their messages are consumed again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orbitmq.broker.config_file import ConfigFile
from orbitmq.disk import PRIVATE, FileModes, off_loop
from orbitmq.errors import OffsetRefusedError
from orbitmq.java_json import JavaInt, JavaLong
from orbitmq.model.versions import DataVersion

if TYPE_CHECKING:
    from orbitmq.clock import Clock

log = logging.getLogger(__name__)

FILE_NAME: Final = "consumerOffset.json"
QUEUES_MAX: Final = 1_000_000
# Queues of groups whose last pull is known: any member may pull any queue.
PULLS_MAX: Final = 250_000
# Queues of groups whose commits at a slave are remembered until the master has them.
COMMITS_HERE_MAX: Final = 100_000
_SEPARATOR: Final = "@"
_OFFSET_MAX: Final = 2**63 - 1
_QUEUE_ID_MAX: Final = 2**31 - 1
# Lowered offsets that are shown in the log.
_SHOWN_MAX: Final = 20
# Queues of which a commit above the end was logged; further ones are refused without a word.
_WARNED_QUEUES_MAX: Final = 1000


class OffsetsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `consumerOffset.json` holds."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion, name="dataVersion")
    # Compat: RocketMQ writes these two and reads neither. They are declared so that they are dropped:
    # unknown members are kept, and these would hold outdated offsets.
    group_topics: dict[str, Any] | None = msgspec.field(default=None, name="groupTopicMap")
    pull_offsets: dict[str, Any] | None = msgspec.field(default=None, name="pullOffsetTable")
    offsets: dict[str, dict[JavaInt, JavaLong]] = msgspec.field(
        default_factory=dict, name="offsetTable"
    )
    # What clients committed at a slave, and its master does not have yet.
    commits_here: dict[str, dict[JavaInt, JavaLong]] | None = msgspec.field(
        default=None, name="orbitmqCommitsHere"
    )


class Commit(Enum):
    """The outcome of a commit."""

    ACCEPTED = "accepted"
    RESET_PENDING = "ignored: the group has not seen a reset yet"
    LATE = "refused: another member has pulled the queue since"
    ABOVE_END = "refused: above the end of the queue"


_Queues = dict[int, int]
# A group, a topic, and the id of a queue.
GroupQueue = tuple[str, str, int]


class CommittedOffsets:
    """The next offset of every group, topic and queue."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock,
        version_step: int = 500,
        queues_max: int = QUEUES_MAX,
        pulls_max: int = PULLS_MAX,
        commits_here_max: int = COMMITS_HERE_MAX,
        modes: FileModes = PRIVATE,
    ) -> None:
        self._file = ConfigFile(folder / FILE_NAME, OffsetsDocument(), modes)
        self._clock = clock
        self._version_step = version_step
        self._queues_max = queues_max
        self._pulls_max = pulls_max
        self._commits_here_max = commits_here_max
        self._offsets: dict[str, dict[str, _Queues]] = {}  # by group, topic, queue id
        self._resets: dict[tuple[str, str, int], int] = {}
        # The client id that pulled a queue last, and the offset it pulled from. Beyond the limit
        # the first one known is dropped; the next pull brings it back.
        self._last_pulls: dict[tuple[str, str, int], tuple[str, int]] = {}
        self._other_keys: dict[str, _Queues] = {}
        # Queues whose last commit was above their end.
        self._above_end: set[tuple[str, str, int]] = set()
        self._is_slave = False
        self._commits_here: dict[GroupQueue, int] = {}
        # Whether more commits came than are remembered; logged once.
        self._is_forgetting = False
        # Held while the file is replaced.
        self._writing = asyncio.Lock()
        self._queue_count = 0
        self._data_version = DataVersion()
        self._commits = 0
        self._is_saved = True
        self.refused_commits = 0

    # --- the file -----------------------------------------------------------------------------

    @property
    def is_found(self) -> bool:
        """Whether there was a file to load."""
        return self._file.is_found

    async def load(self) -> None:
        """Read the file."""
        await self._file.load()
        # A new file is written even if it is empty: one that is missing later was lost.
        self._is_saved = self._file.is_found
        document = self._file.document
        self._data_version = document.data_version
        self._offsets, self._other_keys, self._queue_count = _by_group(document.offsets)
        for group, topics in _by_group(document.commits_here or {})[0].items():
            for topic, queues in topics.items():
                for queue_id, offset in queues.items():
                    self._commits_here[group, topic, queue_id] = offset

    def lower_to_ends(self, end_of: Callable[[str, int], int]) -> None:
        """Lower offsets above the end of their queue, and say so; none was committed there."""
        lowered: list[str] = []
        count = 0
        for group, topics in self._offsets.items():
            for topic, queues in topics.items():
                for queue_id, offset in queues.items():
                    if offset and offset > (end := end_of(topic, queue_id)):
                        queues[queue_id] = end
                        count += 1
                        if count <= _SHOWN_MAX:
                            lowered.append(f"{topic}@{group} queue {queue_id}: {offset} to {end}")
        if count:
            self._is_saved = False
            log.warning(
                "committed offsets lowered to the ends of their queues count=%d reason=the store "
                "lost messages that these groups had consumed offsets=%s%s",
                count,
                "; ".join(lowered),
                "; …" if count > len(lowered) else "",
            )

    async def save(self) -> None:
        """Write the file, if something changed."""
        async with self._writing:
            if not self._is_saved:
                await self._save(self._data_version, self.table())

    async def _save(self, version: DataVersion, offsets: dict[str, _Queues]) -> None:
        if not self._is_slave:
            # From a time as a slave.
            self._commits_here = {}
        document = OffsetsDocument(
            data_version=version, offsets=offsets, commits_here=self._commits_here_by_key()
        )
        self._is_saved = True
        try:
            await self._file.change(lambda _: document)
        except BaseException:
            self._is_saved = False
            raise

    @property
    def data_version(self) -> DataVersion:
        """The version of the table; it grows once per `version_step` commits."""
        return self._data_version

    def table(self) -> dict[str, _Queues]:
        """A copy of all offsets, with the keys of the file."""
        return self._other_keys | _by_key(self._offsets)

    # --- queries ------------------------------------------------------------------------------

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset of a group in a queue; None if it never committed."""
        return self._offsets.get(group, {}).get(topic, {}).get(queue_id)

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """The committed offsets of a group by queue of a topic."""
        return dict(self._offsets.get(group, {}).get(topic, {}))

    def pulled(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset of a group's last pull of a queue; None if there was none."""
        pull = self._last_pulls.get((group, topic, queue_id))
        return pull[1] if pull is not None else None

    def topics_of(self, group: str) -> list[str]:
        """The topics in which a group committed offsets."""
        return list(self._offsets.get(group, {}))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that committed offsets in a topic."""
        return [group for group, topics in self._offsets.items() if topic in topics]

    def groups_and_topics(self) -> frozenset[tuple[str, str]]:
        """Each group and a topic in which it committed offsets."""
        return frozenset(
            (group, topic) for group, topics in self._offsets.items() for topic in topics
        )

    # --- consuming ----------------------------------------------------------------------------

    def note_pull(
        self, group: str, topic: str, queue_id: int, member: str, offset: int = 0
    ) -> None:
        """Record the last pull of a queue: the member's client id, and the offset."""
        pulls = self._last_pulls
        pulls[group, topic, queue_id] = member, offset
        if len(pulls) > self._pulls_max:
            del pulls[next(iter(pulls))]

    def commit(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        end: int = _OFFSET_MAX,
        sender: str | None = None,
    ) -> Commit:
        """Commit an offset; `sender` is the member's client id, None if it is not a member.

        `end` is the current end of the queue, the highest offset that a consumer can have reached.
        """
        _check(queue_id, offset)
        if offset > end:
            self._warn_above_end(group, topic, queue_id, offset, end, sender)
            return Commit.ABOVE_END
        if self._resets and (group, topic, queue_id) in self._resets:
            return Commit.RESET_PENDING
        committed = self.get(group, topic, queue_id)
        if committed is not None and offset < committed:
            puller, _ = self._last_pulls.get((group, topic, queue_id), (None, 0))
            if sender is not None and puller is not None and sender != puller:
                self.refused_commits += 1
                log.warning(
                    "lower offset refused group=%s topic=%s queue=%d offset=%d committed=%d "
                    "sender=%s last_puller=%s",
                    group, topic, queue_id, offset, committed, sender, puller,
                )  # fmt: skip
                return Commit.LATE
            log.info(
                "lower offset committed group=%s topic=%s queue=%d offset=%d committed=%d sender=%s",
                group, topic, queue_id, offset, committed, sender,
            )  # fmt: skip
        self._set(group, topic, queue_id, offset)
        if self._is_slave:
            self._note_commit((group, topic, queue_id), offset)
        if self._above_end:
            self._above_end.discard((group, topic, queue_id))
        return Commit.ACCEPTED

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Take the pending reset of a queue, so that one pull is told; None if there is none."""
        return self._resets.pop((group, topic, queue_id), None) if self._resets else None

    # --- at a slave ---------------------------------------------------------------------------

    def note_commits(self, *, on: bool) -> None:
        """Remember from now on what clients commit here, as a slave; or forget it, as a master."""
        self._is_slave = on
        if not on and self._commits_here:
            self._commits_here = {}
            self._is_saved = False

    @property
    def commits_here(self) -> Mapping[GroupQueue, int]:
        """What clients committed here and the master does not have yet; a copy."""
        return dict(self._commits_here)

    def forget_commits(self, commits: Mapping[GroupQueue, int]) -> None:
        """Forget commits that the master has, unless clients have committed again since."""
        for queue, offset in commits.items():
            if self._commits_here.get(queue) == offset:
                del self._commits_here[queue]
                self._is_saved = False

    async def follow(self, table: Mapping[str, Mapping[int, int]], version: DataVersion) -> None:
        """Replace all offsets by those of a master, except lower ones where a client committed here.

        `table` has the keys of the file. The offsets are on disk before anybody sees them.
        """
        offsets, others, count = await off_loop(_by_group, table)
        total = count + sum(map(len, others.values()))
        if total > self._queues_max:
            raise OffsetRefusedError(
                f"it has offsets of {total} queues, of at most {self._queues_max}"
            )
        async with self._writing:
            count += self._raise_to_commits_here(offsets)
            await self._save(version, others | await off_loop(_by_key, offsets))
            # Clients may have committed during the write.
            count += self._raise_to_commits_here(offsets)
            self._offsets, self._other_keys, self._queue_count = offsets, others, count
            self._data_version = version

    def _raise_to_commits_here(self, offsets: dict[str, dict[str, _Queues]]) -> int:
        """Raise offsets to what clients committed here; returns how many queues that added."""
        added = 0
        for (group, topic, queue_id), offset in self._commits_here.items():
            queues = offsets.setdefault(group, {}).setdefault(topic, {})
            added += queue_id not in queues
            queues[queue_id] = max(offset, queues.get(queue_id, 0))
        return added

    def _note_commit(self, queue: GroupQueue, offset: int) -> None:
        commits = self._commits_here
        commits[queue] = offset
        if len(commits) <= self._commits_here_max:
            return
        del commits[next(iter(commits))]
        if not self._is_forgetting:
            self._is_forgetting = True
            log.warning(
                "commits of some queues will not be passed on to the master reason=only %d are "
                "remembered; their messages may be consumed again",
                self._commits_here_max,
            )

    def _commits_here_by_key(self) -> dict[str, _Queues] | None:
        by_key: dict[str, _Queues] = {}
        for (group, topic, queue_id), offset in self._commits_here.items():
            by_key.setdefault(f"{topic}{_SEPARATOR}{group}", {})[queue_id] = offset
        return by_key or None

    # --- administration -----------------------------------------------------------------------

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move a group, online or not; its next pull is told."""
        _check(queue_id, offset)
        self._set(group, topic, queue_id, offset)
        self._resets[group, topic, queue_id] = offset

    def clone(self, source: str, target: str, topic: str) -> None:
        """Copy the offsets of one group to another, for one topic."""
        for queue_id, offset in self.queues(source, topic).items():
            self._set(target, topic, queue_id, offset)

    def delete_group(self, group: str) -> None:
        """Delete all offsets of a group."""
        topics = self._offsets.pop(group, {})
        self._count_deleted(sum(map(len, topics.values())))
        self._forget(lambda key: key[0] == group)

    def delete_topic(self, topic: str) -> None:
        """Delete the offsets of all groups in a topic."""
        for group in self.groups_of(topic):
            self._count_deleted(len(self._offsets[group].pop(topic)))
            if not self._offsets[group]:
                del self._offsets[group]
        self._forget(lambda key: key[1] == topic)

    def _warn_above_end(
        self, group: str, topic: str, queue_id: int, offset: int, end: int, sender: str | None
    ) -> None:
        # Once a queue: clients repeat a commit every few seconds.
        self.refused_commits += 1
        queue = group, topic, queue_id
        if queue in self._above_end or len(self._above_end) >= _WARNED_QUEUES_MAX:
            return
        self._above_end.add(queue)
        log.warning(
            "offset above the end refused group=%s topic=%s queue=%d offset=%d end=%d sender=%s",
            group, topic, queue_id, offset, end, sender,
        )  # fmt: skip

    def _set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        queues = self._offsets.get(group, {}).get(topic)
        if queues is None or queue_id not in queues:
            if self._queue_count >= self._queues_max:
                raise OffsetRefusedError(
                    f"the broker keeps offsets of {self._queue_count} queues, its limit; "
                    f"cannot add queue {queue_id} of {topic!r} for {group!r}",
                    hint="delete unused groups",
                )
            self._queue_count += 1
            queues = self._offsets.setdefault(group, {}).setdefault(topic, {})
        queues[queue_id] = offset
        self._is_saved = False
        self._commits += 1
        if self._commits % self._version_step == 0:
            self._data_version = self._data_version.next(self._clock.now_ms())

    def _count_deleted(self, queues: int) -> None:
        self._queue_count -= queues
        self._is_saved = self._is_saved and not queues

    def _forget(self, matches: Callable[[tuple[str, str, int]], bool]) -> None:
        for table in (self._resets, self._last_pulls, self._commits_here):
            for key in [key for key in table if matches(key)]:
                del table[key]
        self._above_end = {key for key in self._above_end if not matches(key)}


def _by_group(
    table: Mapping[str, Mapping[int, int]],
) -> tuple[dict[str, dict[str, _Queues]], dict[str, _Queues], int]:
    """Offsets by group and topic, those under other keys, and how many queues the former have."""
    offsets: dict[str, dict[str, _Queues]] = {}
    others: dict[str, _Queues] = {}
    count = 0
    for key, queues in table.items():
        topic, _, group = key.partition(_SEPARATOR)
        if group and _SEPARATOR not in group:
            offsets.setdefault(group, {})[topic] = dict(queues)
            count += len(queues)
        else:
            others[key] = dict(queues)
    return offsets, others, count


def _by_key(offsets: Mapping[str, Mapping[str, Mapping[int, int]]]) -> dict[str, _Queues]:
    """The same, with the keys of the file; a copy."""
    return {
        f"{topic}{_SEPARATOR}{group}": dict(queues)
        for group, topics in offsets.items()
        for topic, queues in topics.items()
    }


def _check(queue_id: int, offset: int) -> None:
    if not 0 <= queue_id <= _QUEUE_ID_MAX:
        raise OffsetRefusedError(f"{queue_id} is not a valid queue id")
    if not 0 <= offset <= _OFFSET_MAX:
        raise OffsetRefusedError(f"{offset} is not a valid queue offset", hint="offsets start at 0")
