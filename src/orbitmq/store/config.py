"""Options of the store."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from orbitmq.disk import GROUP_READABLE, PRIVATE, FileModes
from orbitmq.settings import option

_KIB = 1024
_MIB = 1024 * 1024


class FlushMode(StrEnum):
    """When a message counts as stored."""

    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """How the store keeps its files."""

    root: Path = option(Path("~/store"), java="storePathRootDir", doc="Folder of the store.")
    log_path: str = option(
        "",
        java="storePathCommitLog",
        doc="Folder of the commit log, or several, separated by commas; empty means commitlog in "
        "storePathRootDir.",
    )
    read_only_log_path: str = option(
        "",
        java="readOnlyCommitLogStorePaths",
        doc="Folders of the commit log that get no new files, separated by commas; their files are "
        "read and deleted as usual. storePathCommitLog may name them too.",
    )
    log_file_bytes: int = option(
        1024 * _MIB,
        low=64 * _KIB,
        high=2048 * _MIB - 1,
        java="mappedFileSizeCommitLog",
        doc="Size of each file of the commit log; cannot change once the store has files.",
    )
    queue_file_bytes: int = option(
        6_000_000,
        low=20,
        high=2048 * _MIB - 1,
        java="mappedFileSizeConsumeQueue",
        doc="Size of each file of a consume queue, rounded up to a multiple of 20.",
    )
    flush_mode: FlushMode = option(
        FlushMode.SYNC,
        java="flushDiskType",
        doc="SYNC_FLUSH acknowledges a message once it is on disk, ASYNC_FLUSH before that.",
    )
    flush_interval_ms: int = option(
        500,
        low=1,
        high=60_000,
        java="flushIntervalCommitLog",
        doc="Pause between two background flushes of the commit log.",
    )
    flush_pages_min: int = option(
        4,
        low=0,
        high=1_000_000,
        java="flushCommitLogLeastPages",
        doc="A background flush waits for this many dirty pages of 4 KiB.",
    )
    flush_thorough_interval_ms: int = option(
        10_000,
        low=1,
        high=3_600_000,
        java="flushCommitLogThoroughInterval",
        doc="After this long a background flush happens, however few pages are dirty.",
    )
    flush_timeout_ms: int = option(
        5000,
        low=1,
        high=600_000,
        java="syncFlushTimeout",
        doc="A send that waits longer for its flush is answered FLUSH_DISK_TIMEOUT.",
    )
    queue_flush_interval_ms: int = option(
        1000,
        low=1,
        high=60_000,
        java="flushIntervalConsumeQueue",
        doc="Pause between two flushes of the consume queues, which also writes the checkpoint.",
    )
    queue_flush_thorough_interval_ms: int = option(
        60_000,
        low=1,
        high=3_600_000,
        java="flushConsumeQueueThoroughInterval",
        doc="After this long the consume queues are flushed, however many of them changed.",
    )
    body_bytes_max: int = option(
        4 * _MIB,
        low=10,
        high=1024 * _MIB,
        live=True,
        java="maxMessageSize",
        doc="Largest body, and largest batch.",
    )
    index_enable: bool = option(
        True, java="messageIndexEnable", doc="Index messages by key and unique id."
    )
    index_slots: int = option(
        5_000_000,
        low=1,
        high=100_000_000,
        java="maxHashSlotNum",
        doc="Hash slots of an index file; cannot change once the store has files.",
    )
    index_entries: int = option(
        20_000_000,
        low=2,
        high=100_000_000,
        java="maxIndexNum",
        doc="Entries of an index file; cannot change once the store has files.",
    )
    query_count_max: int = option(
        64, low=1, high=10_000, java="maxMsgsNumBatch", doc="Most messages that one query returns."
    )
    check_bodies: bool = option(
        True,
        java="checkCRCOnRecover",
        doc="After a crash, check the checksums of bodies even in the part of the log that was "
        "flushed; the rest is always checked.",
    )
    delay_levels: str = option(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        java="messageDelayLevel",
        doc="Delays of the levels 1, 2, 3 and so on.",
    )
    timers_enable: bool = option(
        True,
        java="timerWheelEnable",
        doc="Accept messages with a due time (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC).",
    )
    timer_delay_seconds_max: int = option(
        259_200,
        low=1,
        high=10 * 366 * 86_400,
        live=True,
        guarded="fill the disk",
        java="timerMaxDelaySec",
        doc="How far ahead the due time of a message may be. Records of messages that are not due "
        "yet are kept, whatever fileReservedTime says.",
    )
    timer_flush_interval_ms: int = option(
        1000,
        low=10,
        high=60_000,
        java="timerFlushIntervalMs",
        doc="Pause between two writes of the timers' progress to disk.",
    )
    timer_log_file_bytes: int = option(
        100 * _MIB,
        low=1024,
        high=2048 * _MIB - 1,
        java="mappedFileSizeTimerLog",
        doc="Size of each file of the timer log; cannot change once there are some.",
    )
    recall_keys_with_topic: bool = option(
        False,
        java="appendTopicForTimerDeleteKey",
        doc="Name the topic in recalls that are stored, for brokers before RocketMQ 5.4; both forms "
        "are understood.",
    )
    memory_count_max: int = option(
        32,
        low=1,
        high=1_000_000,
        java="maxTransferCountOnMessageInMemory",
        doc="Most messages of one read near the end of the log.",
    )
    memory_bytes_max: int = option(
        256 * _KIB,
        low=1,
        high=128 * _MIB,
        java="maxTransferBytesOnMessageInMemory",
        doc="Most bytes of one read near the end of the log.",
    )
    disk_count_max: int = option(
        8,
        low=1,
        high=1_000_000,
        java="maxTransferCountOnMessageInDisk",
        doc="Most messages of one read far from the end of the log.",
    )
    disk_bytes_max: int = option(
        64 * _KIB,
        low=1,
        high=128 * _MIB,
        java="maxTransferBytesOnMessageInDisk",
        doc="Most bytes of one read far from the end of the log.",
    )
    scan_bytes_max: int = option(
        16_000,
        low=20,
        high=128 * _MIB,
        java="maxFilterMessageSize",
        doc="Most bytes of queue entries that one read examines, 20 for each entry.",
    )
    memory_percent: int = option(
        40,
        low=1,
        high=100,
        java="accessMessageInMemoryMaxRatio",
        doc="Messages count as near the end of the log within this percentage of the machine's "
        "memory.",
    )
    open_files_max: int = option(
        512,
        low=8,
        high=100_000,
        java="consumeQueueOpenFilesMax",
        doc="Most files of consume queues that are kept open.",
    )
    memory_log_bytes_max: int = option(
        64 * _MIB,
        low=_MIB,
        high=1024 * 1024 * _MIB,
        java="memoryLogBytesMax",
        doc="Memory for the messages of all topics that are kept in memory; the oldest are dropped "
        "to make room.",
    )
    scrub_bytes_per_second: int = option(
        _MIB,
        low=0,
        high=1024 * _MIB,
        java="scrubBytesPerSecond",
        doc="How much of the log is checked in the background, and compared with the queues, in "
        "passes an hour apart; 0 turns it off.",
    )
    group_readable: bool = option(
        False,
        java="storeGroupReadable",
        doc="Let the group of the store's folder read it: new files get mode 0640 and new folders "
        "0750, instead of 0600 and 0700. Existing ones keep theirs.",
    )

    @property
    def modes(self) -> FileModes:
        """The permissions of new files and folders."""
        return GROUP_READABLE if self.group_readable else PRIVATE
