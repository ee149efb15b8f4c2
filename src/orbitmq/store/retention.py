"""Retention: which files of the log go, when and why.

Whole files go, oldest first and never the one being written: those older than the time to keep,
at the hour for it or when the disk fills up; and any, when the disk is nearly full. Age is the
time since a file was last modified, as in RocketMQ. Queues and index follow the log. On a disk
that is too full no messages are taken.

`decide` is a pure function of files, disks and time; `Retention` measures, asks it and deletes.

Threads: any; one pass at a time. Crash: a file is gone or not; opening the store brings the queues
in line.
"""

from __future__ import annotations

import datetime
import logging
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from orbitmq.clock import Clock
from orbitmq.errors import DiskFullError, SettingsError
from orbitmq.model.queues import PhysicalOffset
from orbitmq.settings import option

log = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000
# How many passes an operator's request for deletion lasts, as in RocketMQ.
REQUESTED_PASSES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """How long messages are kept, and how full the disk may get."""

    reserved_hours: int = option(
        72,
        low=0,
        high=1_000_000,
        live=True,
        java="fileReservedTime",
        doc="Hours that a file of the log is kept after it was last written to.",
    )
    delete_when: str = option(
        "04",
        live=True,
        java="deleteWhen",
        doc="Hours of the day, local time, at which files past their time are deleted; several "
        "are separated by semicolons.",
    )
    used_percent_max: int = option(
        75,
        low=0,
        high=100,
        live=True,
        java="diskMaxUsedSpaceRatio",
        doc="Above this share of the disk, files past their time are deleted at any hour; counts "
        "as at least 10 and at most 95.",
    )
    forced_percent: int = option(
        85,
        low=0,
        high=100,
        live=True,
        java="diskSpaceCleanForciblyRatio",
        doc="Above this share of the disk, the oldest files are deleted whatever their age; "
        "counts as at least 30 and at most 85.",
    )
    full_percent: int = option(
        90,
        low=0,
        high=100,
        live=True,
        java="diskSpaceWarningLevelRatio",
        doc="Above this share of the disk, no messages are taken; counts as at least 35 and at "
        "most 90.",
    )
    delete_forcibly: bool = option(
        True,
        live=True,
        java="cleanFileForciblyEnable",
        doc="Whether a nearly full disk may cost files that are not past their time.",
    )
    free_bytes_min: int = option(
        0,
        low=0,
        high=1 << 60,
        live=True,
        java="diskFreeBytesMin",
        doc="With fewer bytes free on the disk, the oldest files are deleted whatever their age; "
        "0 means no such limit.",
    )
    files_max: int = option(
        10,
        low=1,
        high=10_000,
        live=True,
        java="deleteFileBatchMax",
        doc="Files deleted in one pass at most.",
    )
    interval_ms: int = option(
        10_000,
        low=100,
        high=86_400_000,
        java="cleanResourceInterval",
        doc="Pause between two passes, and before the first.",
    )

    def __post_init__(self) -> None:
        """Refuse hours that cannot be read."""
        parse_hours(self.delete_when)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """How full a disk is; `free_bytes` is what this process may still use."""

    device: int
    used_bytes: int
    free_bytes: int

    def percent(self, freed_bytes: int = 0) -> int:
        """The share in use, rounded up, once `freed_bytes` more are free."""
        total = self.used_bytes + self.free_bytes
        used = max(self.used_bytes - freed_bytes, 0)
        return -(-used * 100 // total) if total else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAge:
    """What retention knows of one file of the log."""

    path: Path
    device: int
    end_offset: int
    file_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A file that goes, and the reason in words."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What one pass does."""

    # Oldest first, each the oldest when its turn comes.
    deletions: tuple[Deletion, ...] = ()
    # Why no messages may be taken; empty when they may.
    refusal: str = ""


def decide(
    files: Sequence[FileAge],
    *,
    log_disks: Sequence[DiskUse],
    queue_disk: DiskUse,
    now_ms: int,
    config: RetentionConfig,
    is_requested: bool = False,
    keep_from: PhysicalOffset | None = None,
    zone: datetime.tzinfo | None = None,
) -> RetentionPlan:
    """Decide which files of the log go, oldest first.

    The last of `files`, and those that reach beyond `keep_from`, stay. Of several disks with
    files of the log the emptiest counts, as in RocketMQ: the next file can go there. `zone` is
    the one of `delete_when`, by default the machine's.
    """
    deletions: list[Deletion] = []
    freed: Counter[int] = Counter()
    why_now = _why_now(config, log_disks, queue_disk, now_ms, zone, is_requested=is_requested)
    for file in files[:-1]:
        if len(deletions) >= config.files_max:
            break
        if keep_from is not None and file.end_offset > keep_from:
            break
        reason = _expiry(file, config, now_ms) if why_now else ""
        if reason:
            reason = f"{reason}; {why_now}"
        elif config.delete_forcibly:
            reason = _pressure(config, log_disks, queue_disk, freed)
        if not reason:
            break
        deletions.append(Deletion(path=file.path, reason=reason))
        freed[file.device] += file.file_bytes
    return RetentionPlan(
        deletions=tuple(deletions), refusal=_refusal(config, log_disks, queue_disk)
    )


def parse_hours(text: str) -> frozenset[int]:
    """Read the hours of `deleteWhen`."""
    hours: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(";"))):
        if not (part.isascii() and part.isdigit()) or int(part) > 23:
            raise SettingsError(
                f"deleteWhen: {part!r} is not an hour", hint="write 0 to 23, for example 04;16"
            )
        hours.add(int(part))
    return frozenset(hours)


def _why_now(
    config: RetentionConfig,
    log_disks: Sequence[DiskUse],
    queue_disk: DiskUse,
    now_ms: int,
    zone: datetime.tzinfo | None,
    *,
    is_requested: bool,
) -> str:
    """Say why files past their time go in this pass; empty when they stay for now."""
    if is_requested:
        return "asked for by an operator"
    hour = datetime.datetime.fromtimestamp(now_ms / 1000, tz=datetime.UTC).astimezone(zone).hour
    if hour in parse_hours(config.delete_when):
        return f"it is the hour of deleteWhen {config.delete_when}"
    limit = min(max(config.used_percent_max, 10), 95)
    for used, disk in _used_percents(log_disks, queue_disk, Counter()):
        if used > limit:
            return f"the disk of the {disk} is {used} % used, above {limit}"
    return ""


def _expiry(file: FileAge, config: RetentionConfig, now_ms: int) -> str:
    age_hours = (now_ms - file.modified_ms) / _HOUR_MS
    if age_hours < config.reserved_hours:
        return ""
    return f"last written {age_hours:.1f} hours ago, kept for {config.reserved_hours}"


def _pressure(
    config: RetentionConfig,
    log_disks: Sequence[DiskUse],
    queue_disk: DiskUse,
    freed: Counter[int],
) -> str:
    """Say why another file goes whatever its age, after some were freed; empty when it stays."""
    limit = _forced_limit(config)
    for used, disk in _used_percents(log_disks, queue_disk, freed):
        if used > limit:
            return f"the disk of the {disk} is {used} % used, above {limit}"
    free_bytes = max((disk.free_bytes + freed[disk.device] for disk in log_disks), default=0)
    if log_disks and free_bytes < config.free_bytes_min:
        return f"the disk of the log has {free_bytes} bytes free, below {config.free_bytes_min}"
    return ""


def _forced_limit(config: RetentionConfig) -> int:
    return min(max(config.forced_percent, 30), 85)


def _refusal(config: RetentionConfig, log_disks: Sequence[DiskUse], queue_disk: DiskUse) -> str:
    limit = min(max(config.full_percent, 35), 90)
    for used, disk in _used_percents(log_disks, queue_disk, Counter()):
        if used > limit:
            return f"the disk of the {disk} is {used} % used, above {limit}"
    return ""


def _used_percents(
    log_disks: Sequence[DiskUse], queue_disk: DiskUse, freed: Counter[int]
) -> tuple[tuple[int, str], ...]:
    log_used = min((disk.percent(freed[disk.device]) for disk in log_disks), default=0)
    return (log_used, "log"), (queue_disk.percent(freed[queue_disk.device]), "queues")


# --- running ----------------------------------------------------------------------------------


class _LogFile(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def end_offset(self) -> int: ...


class _Log(Protocol):
    """What is used of a `CommitLog`."""

    full_folders: frozenset[Path]

    @property
    def files(self) -> Sequence[_LogFile]: ...
    def delete_first(self) -> PhysicalOffset: ...


class _Queues(Protocol):
    """What is used of `ConsumeQueues`."""

    def raise_starts(self, log_start: PhysicalOffset) -> None: ...


class _Indexes(Protocol):
    """What is used of `KeyIndexes`."""

    def delete_before(self, log_start: PhysicalOffset) -> None: ...


class Retention:
    """Deletes what a pass decides, and says whether messages may be taken."""

    def __init__(
        self,
        config: RetentionConfig,
        *,
        commit_log: _Log,
        queues: _Queues,
        indexes: _Indexes | None,
        log_folders: Sequence[Path],
        queue_folder: Path,
        clock: Clock,
        measure: Callable[[Path], DiskUse] | None = None,
    ) -> None:
        # Replaced as a whole when options change.
        self.config = config
        self._log = commit_log
        self._queues = queues
        self._indexes = indexes
        self._log_folders = log_folders
        self._queue_folder = queue_folder
        self._clock = clock
        self._measure = measure or measure_disk
        self._requested_passes = 0
        self._lock = threading.Lock()
        # Why no messages may be taken; empty when they may.
        self.refusal = ""

    def request(self) -> None:
        """Let the next passes delete files past their time at any hour."""
        self._requested_passes = REQUESTED_PASSES

    def error(self) -> DiskFullError:
        """Say in an error why no messages are taken."""
        return DiskFullError(
            f"no messages are taken: {self.refusal}",
            hint="free space, or lower fileReservedTime; sending works again within "
            f"{self.config.interval_ms / 1000:g} seconds of that",
        )

    def run(self, *, keep_from: PhysicalOffset | None = None) -> RetentionPlan:
        """Do one pass; files that reach beyond `keep_from` stay."""
        with self._lock:
            is_requested = self._requested_passes > 0
            self._requested_passes = max(0, self._requested_passes - 1)
            disks = {folder: self._measure(folder) for folder in self._log_folders}
            decision = decide(
                [_age(file) for file in self._log.files],
                log_disks=list(disks.values()),
                queue_disk=self._measure(self._queue_folder),
                now_ms=self._clock.now_ms(),
                config=self.config,
                is_requested=is_requested,
                keep_from=keep_from,
            )
            self._note_refusal(decision.refusal)
            # Compat: of several folders those above the ratio for forced deletion get no new files.
            self._log.full_folders = frozenset(
                folder
                for folder, disk in disks.items()
                if disk.percent() > _forced_limit(self.config)
            )
            self._delete(decision)
            return decision

    def _delete(self, decision: RetentionPlan) -> None:
        log_start: PhysicalOffset | None = None
        try:
            for deletion in decision.deletions:
                log_start = self._log.delete_first()
                log.info("log file deleted file=%s reason=%s", deletion.path.name, deletion.reason)
        finally:
            if log_start is not None:
                self._queues.raise_starts(log_start)
                if self._indexes is not None:
                    self._indexes.delete_before(log_start)

    def _note_refusal(self, refusal: str) -> None:
        if refusal and not self.refusal:
            log.error("messages refused until there is room reason=%s", refusal)
        elif self.refusal and not refusal:
            log.info("messages taken again")
        self.refusal = refusal


def measure_disk(folder: Path) -> DiskUse:
    """Ask the system how full the disk is that a folder is on, or will be."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    return DiskUse(device=folder.stat().st_dev, used_bytes=usage.used, free_bytes=usage.free)


def _age(file: _LogFile) -> FileAge:
    status = file.path.stat()
    return FileAge(
        path=file.path,
        device=status.st_dev,
        end_offset=file.end_offset,
        file_bytes=status.st_size,
        modified_ms=status.st_mtime_ns // 1_000_000,
    )
