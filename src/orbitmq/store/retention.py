"""Retention: which files of the log are deleted, when and why.

Whole files are deleted, oldest first and never the one being written: expired ones at the
configured hour or when the disk fills up, and any when the disk is nearly full. Age is the time
since a file was last modified, as in RocketMQ. Queues and index follow the log. On a disk that is
too full, messages are refused.

A gate keeps the log from an offset on, since somebody still has to copy it elsewhere. It ends only
where files would be deleted by force and are too old or the disk is full, and then only if
`gateOnFull` says so.

`decide` is a pure function of files, disks and time; `Retention` measures, calls it and deletes.

Threads: any; one pass at a time. Crash: a file is deleted or not; opening the store brings the
queues in line.
"""

from __future__ import annotations

import datetime
import itertools
import logging
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
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
_NOTHING_FREED: Final[Counter[int]] = Counter()


class GateOnFull(StrEnum):
    """What becomes of files that an archive still needs when there is no room for them."""

    REFUSE = "refuseWrites"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """How long messages are kept, and how full the disk may get."""

    reserved_hours: int = option(
        72,
        low=0,
        high=1_000_000,
        live=True,
        guarded="delete messages",
        java="fileReservedTime",
        doc="Hours that a file of the log is kept after its last write.",
    )
    delete_when: str = option(
        "04",
        live=True,
        guarded="delete messages",
        java="deleteWhen",
        doc="Hours of the day, local time, at which expired files are deleted; separated by "
        "semicolons.",
    )
    used_percent_max: int = option(
        75,
        low=0,
        high=100,
        live=True,
        guarded="delete messages",
        java="diskMaxUsedSpaceRatio",
        doc="Above this percentage of the disk, expired files are deleted at any hour; values "
        "below 10 count as 10, above 95 as 95.",
    )
    forced_percent: int = option(
        85,
        low=0,
        high=100,
        live=True,
        guarded="delete messages",
        java="diskSpaceCleanForciblyRatio",
        doc="Above this percentage of the disk, the oldest files are deleted whatever their age; "
        "values below 30 count as 30, above 85 as 85.",
    )
    full_percent: int = option(
        90,
        low=0,
        high=100,
        live=True,
        guarded="stop all sends",
        java="diskSpaceWarningLevelRatio",
        doc="Above this percentage of the disk, messages are refused; values below 35 count as "
        "35, above 90 as 90.",
    )
    delete_forcibly: bool = option(
        True,
        live=True,
        guarded="delete messages or fill the disk",
        java="cleanFileForciblyEnable",
        doc="Whether a nearly full disk may delete files before they expire.",
    )
    free_bytes_min: int = option(
        0,
        low=0,
        high=1 << 60,
        live=True,
        guarded="delete messages",
        java="diskFreeBytesMin",
        doc="With fewer bytes free on the disk, the oldest files are deleted whatever their age; "
        "0 means no limit.",
    )
    files_max: int = option(
        10,
        low=1,
        high=10_000,
        live=True,
        guarded="delete messages",
        java="deleteFileBatchMax",
        doc="Most files that one pass deletes.",
    )
    gate_hours_max: int = option(
        0,
        low=0,
        high=1_000_000,
        live=True,
        guarded="delete messages or stop all sends",
        java="gateMaxAge",
        doc="Hours after its last write from which a file that an archive still needs, on a disk "
        "that is nearly full, is handled by gateOnFull; 0 means not before the disk is full.",
    )
    gate_on_full: GateOnFull = option(
        GateOnFull.REFUSE,
        live=True,
        guarded="delete messages or stop all sends",
        java="gateOnFull",
        doc="What happens when files that an archive still needs would have to be deleted: "
        "refuseWrites refuses messages and names the archive, delete deletes them.",
    )
    interval_ms: int = option(
        10_000,
        low=100,
        high=86_400_000,
        java="cleanResourceInterval",
        doc="Pause between two passes, and before the first.",
    )

    def __post_init__(self) -> None:
        """Refuse invalid hours."""
        parse_hours(self.delete_when)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """How full a disk is; `free_bytes` is what this process may still use."""

    device: int
    used_bytes: int
    free_bytes: int

    def percent(self, freed_bytes: int = 0) -> int:
        """The percentage in use, rounded up, once `freed_bytes` more are free."""
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
    """A file to delete, and the reason in words."""

    path: Path
    reason: str
    # Who still needed it; empty if nobody.
    needed_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """From where on the log has to wait, and for whom."""

    keep_from: PhysicalOffset
    # For people.
    holder: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What one pass does."""

    # Oldest first.
    deletions: tuple[Deletion, ...] = ()
    # Why messages are refused; empty if they are accepted.
    refusal: str = ""
    # The oldest file that would be deleted too if it were not needed.
    kept: Deletion | None = None
    # The same, for one that a gate keeps.
    gated: Deletion | None = None
    # Where the files end that are past their time, or that a full disk wants gone, and stay.
    overdue: tuple[int, ...] = ()


def decide(  # noqa: PLR0913  # by name
    files: Sequence[FileAge],
    *,
    log_disks: Sequence[DiskUse],
    queue_disk: DiskUse,
    now_ms: int,
    config: RetentionConfig,
    is_requested: bool = False,
    keep_from: PhysicalOffset | None = None,
    gate: Gate | None = None,
    zone: datetime.tzinfo | None = None,
) -> RetentionPlan:
    """Decide which files of the log to delete, oldest first.

    The last of `files`, and those that reach beyond `keep_from`, are kept; those that reach beyond
    the `gate`, while it holds. If the log has several disks, the emptiest counts, as in RocketMQ:
    the next file can go there. `zone` is the time zone of `delete_when`, by default the machine's.
    """
    deletions: list[Deletion] = []
    kept: Deletion | None = None
    gated: Deletion | None = None
    refusal = _refusal(config, log_disks, queue_disk)
    freed: Counter[int] = Counter()
    why_now = _why_now(config, log_disks, queue_disk, now_ms, zone, is_requested=is_requested)
    for file in files[:-1]:
        if len(deletions) >= config.files_max:
            break
        reason = _expiry(file, config, now_ms) if why_now else ""
        reason = f"{reason}; {why_now}" if reason else _forced(config, log_disks, queue_disk, freed)
        if not reason:
            break
        deletion = Deletion(path=file.path, reason=reason)
        if keep_from is not None and file.end_offset > keep_from:
            kept = deletion
            break
        if gate is not None and file.end_offset > gate.keep_from:
            why = _gate_end(file, config, log_disks, queue_disk, freed, now_ms)
            if not why or config.gate_on_full is GateOnFull.REFUSE:
                gated = deletion
                refusal = refusal or why
                break
            deletion = Deletion(path=file.path, reason=f"{reason}; {why}", needed_by=gate.holder)
        deletions.append(deletion)
        freed[file.device] += file.file_bytes
    if refusal and gated is not None and gate is not None:
        refusal = f"{refusal}; its oldest files are kept for {gate.holder}"
    left = files[len(deletions) : -1]
    overdue = itertools.takewhile(
        lambda file: _expiry(file, config, now_ms) or _forced(config, log_disks, queue_disk, freed),
        left,
    )
    return RetentionPlan(
        deletions=tuple(deletions),
        refusal=refusal,
        kept=kept,
        gated=gated,
        overdue=tuple(file.end_offset for file in overdue),
    )


def _forced(
    config: RetentionConfig,
    log_disks: Sequence[DiskUse],
    queue_disk: DiskUse,
    freed: Counter[int],
) -> str:
    """Why another file is deleted whatever its age; empty if it is kept."""
    return _pressure(config, log_disks, queue_disk, freed) if config.delete_forcibly else ""


def _gate_end(
    file: FileAge,
    config: RetentionConfig,
    log_disks: Sequence[DiskUse],
    queue_disk: DiskUse,
    freed: Counter[int],
    now_ms: int,
) -> str:
    """Why a file cannot wait any longer; empty if it can."""
    if not _forced(config, log_disks, queue_disk, freed):
        return ""
    full = _refusal(config, log_disks, queue_disk, freed)
    if full:
        return full
    age_hours = (now_ms - file.modified_ms) / _HOUR_MS
    if config.gate_hours_max and age_hours >= config.gate_hours_max:
        return (
            f"a file was last written {age_hours:.1f} hours ago, and gateMaxAge is "
            f"{config.gate_hours_max}"
        )
    return ""


def parse_hours(text: str) -> frozenset[int]:
    """Parse the hours of `deleteWhen`."""
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
    """Why this pass deletes expired files; empty if it does not."""
    if is_requested:
        return "requested by an operator"
    hour = datetime.datetime.fromtimestamp(now_ms / 1000, tz=datetime.UTC).astimezone(zone).hour
    if hour in parse_hours(config.delete_when):
        return f"it is the hour of deleteWhen {config.delete_when}"
    limit = min(max(config.used_percent_max, 10), 95)
    for used, disk in _used_percents(log_disks, queue_disk, _NOTHING_FREED):
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
    """Why another file is deleted whatever its age, after `freed` bytes; empty if it is kept."""
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


def _refusal(
    config: RetentionConfig,
    log_disks: Sequence[DiskUse],
    queue_disk: DiskUse,
    freed: Counter[int] = _NOTHING_FREED,
) -> str:
    """Why the disk is full, after `freed` bytes; empty if it is not."""
    limit = min(max(config.full_percent, 35), 90)
    for used, disk in _used_percents(log_disks, queue_disk, freed):
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
    """The part of `CommitLog` that retention uses."""

    full_folders: frozenset[Path]

    @property
    def files(self) -> Sequence[_LogFile]: ...
    def delete_first(self) -> PhysicalOffset: ...


class _Queues(Protocol):
    """The part of `ConsumeQueues` that retention uses."""

    def raise_starts(self, log_start: PhysicalOffset) -> None: ...


class _Indexes(Protocol):
    """The part of `KeyIndexes` that retention uses."""

    def delete_before(self, log_start: PhysicalOffset) -> None: ...


def measure_disk(folder: Path) -> DiskUse:
    """Measure the disk of a folder, which need not exist yet."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    return DiskUse(device=folder.stat().st_dev, used_bytes=usage.used, free_bytes=usage.free)


@dataclass(slots=True, eq=False, kw_only=True)
class Retention:
    """Deletes the files that a pass selects, and decides whether messages are refused."""

    # Replaced as a whole when options change.
    config: RetentionConfig
    commit_log: _Log
    queues: _Queues
    indexes: _Indexes | None
    log_folders: Sequence[Path]
    queue_folder: Path
    clock: Clock
    measure: Callable[[Path], DiskUse] = measure_disk
    # Called with the start of the log before the files below it are deleted.
    before_deletion: Callable[[int], None] = lambda _: None
    # What the log has to wait for; asked in each pass.
    gate: Callable[[], Gate | None] = lambda: None
    # Why messages are refused; empty if they are accepted.
    refusal: str = field(default="", init=False)
    # What to do about that.
    _hint: str = field(default="", init=False)
    # Where the files end that were overdue in the last pass.
    _overdue: tuple[int, ...] = field(default=(), init=False)
    # The file that is kept beyond its time, which is logged, and the one that a gate keeps.
    _kept: Path | None = field(default=None, init=False)
    _gated: Path | None = field(default=None, init=False)
    _requested_passes: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def request(self) -> None:
        """Let the next passes delete expired files at any hour."""
        self._requested_passes = REQUESTED_PASSES

    def error(self) -> DiskFullError:
        """The error for refused messages."""
        return DiskFullError(
            f"messages are refused: {self.refusal}",
            hint=f"{self._hint or 'free space, or lower fileReservedTime'}; sending works again "
            f"within {self.config.interval_ms / 1000:g} seconds after that",
        )

    def overdue_from(self, offset: int) -> int:
        """How many files are past their time, or in the way of a full disk, and reach beyond it."""
        return sum(end > offset for end in self._overdue)

    def finish_pass(self) -> None:
        """Return once a pass that may not know of the newest gate has ended."""
        with self._lock:
            pass

    def run(self, *, keep_from: PhysicalOffset | None = None, needed_by: str = "") -> RetentionPlan:
        """Do one pass; files that reach beyond `keep_from` are kept, and `needed_by` says why."""
        with self._lock:
            is_requested = self._requested_passes > 0
            self._requested_passes = max(0, self._requested_passes - 1)
            disks = {folder: self.measure(folder) for folder in self.log_folders}
            gate = self.gate()
            plan = decide(
                [_age(file) for file in self.commit_log.files],
                log_disks=list(disks.values()),
                queue_disk=self.measure(self.queue_folder),
                now_ms=self.clock.now_ms(),
                config=self.config,
                is_requested=is_requested,
                keep_from=keep_from,
                gate=gate,
            )
            self._set_refusal(plan.refusal)
            self._hint = gate.hint if gate is not None and plan.gated is not None else ""
            self._overdue = plan.overdue
            self._report_gated(plan, gate)
            self._report_kept(plan.kept if needed_by else None, needed_by)
            # Compat: of several folders, those above the limit for forced deletion get no new files.
            self.commit_log.full_folders = frozenset(
                folder
                for folder, disk in disks.items()
                if disk.percent() > _forced_limit(self.config)
            )
            self._delete(plan)
            return plan

    def _delete(self, plan: RetentionPlan) -> None:
        log_start: PhysicalOffset | None = None
        if plan.deletions:
            self.before_deletion(self.commit_log.files[len(plan.deletions) - 1].end_offset)
        try:
            for deletion in plan.deletions:
                log_start = self.commit_log.delete_first()
                if deletion.needed_by:
                    log.warning(
                        "log file deleted that is not archived file=%s reason=%s archive=%s",
                        deletion.path.name,
                        deletion.reason,
                        deletion.needed_by,
                    )
                else:
                    log.info(
                        "log file deleted file=%s reason=%s", deletion.path.name, deletion.reason
                    )
        finally:
            if log_start is not None:
                self.queues.raise_starts(log_start)
                if self.indexes is not None:
                    self.indexes.delete_before(log_start)

    def _report_kept(self, kept: Deletion | None, needed_by: str) -> None:
        if kept is not None and kept.path != self._kept:
            log.warning(
                "log files kept beyond their time first=%s reason=%s; needed by %s",
                kept.path.name,
                kept.reason,
                needed_by,
            )
        self._kept = kept.path if kept is not None else None

    def _report_gated(self, plan: RetentionPlan, gate: Gate | None) -> None:
        gated = plan.gated
        if gated is not None and gate is not None and gated.path != self._gated:
            log.warning(
                "log files kept for an archive first=%s count=%d reason=%s archive=%s hint=%s",
                gated.path.name,
                self.overdue_from(gate.keep_from),
                gated.reason,
                gate.holder,
                gate.hint,
            )
        self._gated = gated.path if gated is not None else None

    def _set_refusal(self, refusal: str) -> None:
        if refusal and not self.refusal:
            log.error("messages refused until the disk has room reason=%s", refusal)
        elif self.refusal and not refusal:
            log.info("messages accepted again")
        self.refusal = refusal


def _age(file: _LogFile) -> FileAge:
    status = file.path.stat()
    return FileAge(
        path=file.path,
        device=status.st_dev,
        end_offset=file.end_offset,
        file_bytes=status.st_size,
        modified_ms=status.st_mtime_ns // 1_000_000,
    )
