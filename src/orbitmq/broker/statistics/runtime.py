"""The state of a broker as strings, under the names of RocketMQ's tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from typing import TYPE_CHECKING, Final

from orbitmq.model.names import SCHEDULE_TOPIC
from orbitmq.model.versions import OUR_VERSION, version_name
from orbitmq.store.opening.parts import log_folders
from orbitmq.store.retention import measure_disk

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.confirmations import Confirmations
    from orbitmq.broker.statistics.replication_metrics import ReplicationFigures
    from orbitmq.broker.statistics.samples import Samples
    from orbitmq.clock import Clock
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.message_store import MessageStore

_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_NO_BUFFER_POOL: Final = str(2**31 - 1)
# RocketMQ's values for features that are off, and for queues that an event loop does not have.
_ABSENT: Final = {
    "pageCacheLockTimeMills": "0",
    "dispatchMaxBuffer": "0",
    "remainTransientStoreBufferNumbs": _NO_BUFFER_POOL,
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
    "litePullThreadPoolQueueSize": "0",
    "litePullThreadPoolQueueCapacity": "0",
    "litePullThreadPoolQueueHeadWaitTimeMills": "0",
    "queryThreadPoolQueueSize": "0",
    "queryThreadPoolQueueCapacity": "0",
    "queryThreadPoolQueueHeadWaitTimeMills": "0",
    "ackThreadPoolQueueSize": "0",
    "ackThreadPoolQueueCapacity": "0",
    "ackThreadPoolQueueHeadWaitTimeMills": "0",
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "0",
}


class Runtime:
    """Reports the broker's state."""

    def __init__(  # noqa: PLR0913  # the sources of what it reports
        self,
        *,
        config: Callable[[], BrokerConfig],
        store_config: StoreConfig,
        store: MessageStore,
        samples: Samples,
        delay_offsets: Callable[[], Mapping[int, int]],
        timers_behind: Callable[[], tuple[int, int]],
        confirmations: Confirmations,
        reads: Sized,
        replication: Callable[[], ReplicationFigures],
        clock: Clock,
    ) -> None:
        self._config = config
        self._store_config = store_config
        self._store = store
        self._samples = samples
        self._counters = samples.counters
        # The next offset of each delay level.
        self._delay_offsets = delay_offsets
        # Timers that are not in the wheel yet, and milliseconds that delivery is late.
        self._timers_behind = timers_behind
        self._confirmations = confirmations
        # Pulls that wait for the disk.
        self._reads = reads
        self._replication = replication
        self._clock = clock
        self._started_ms = clock.now_ms()

    @property
    def log_end(self) -> int:
        """The offset after the newest record of the log."""
        return self._store.log_end

    def from_memory(self) -> dict[str, str]:
        """What is in memory; call it on the event loop."""
        standing = self._replication()
        role = {
            "brokerRole": standing.role,
            "brokerIsMaster": str(standing.is_master).lower(),
            "brokerEpoch": str(standing.epoch),
        }
        return _ABSENT | role | self._calls() | self._days() | self._waiting() | self._delays()

    def from_disk(self) -> dict[str, str]:
        """What has to be read from disk; any thread."""
        store, root = self._store, self._store_config.root.expanduser()
        folders = log_folders(root, self._store_config.log_path)
        ratios = {str(folder): measure_disk(folder).percent() / 100 for folder in folders}
        disk = measure_disk(root)
        oldest = store.message_at(store.log_start)
        return {
            "commitLogDiskRatio": str(min(ratios.values())),
            **{f"commitLogDiskRatio_{folder}": str(ratio) for folder, ratio in ratios.items()},
            "consumeQueueDiskRatio": str(disk.percent() / 100),
            "commitLogMinOffset": str(store.log_start),
            "commitLogMaxOffset": str(store.log_end),
            "dispatchBehindBytes": str(max(store.log_end - store.visible, 0)),
            "remainHowManyDataToFlush": format_bytes(max(store.log_end - store.flushed, 0)),
            "commitLogDirCapacity": f"Total : {format_bytes(disk.used_bytes + disk.free_bytes)}, "
            f"Free : {format_bytes(disk.free_bytes)}.",
            "earliestMessageTimeStamp": str(oldest.store_ms if oldest is not None else -1),
        }

    def _calls(self) -> dict[str, str]:
        counters, rates = self._counters, self._samples.rates
        puts = counters.other_puts.messages
        size = counters.other_puts.bytes
        for counter in counters.puts.values():
            puts += counter.messages
            size += counter.bytes
        # Compat: RocketMQ reports at least one put, to divide by it.
        puts = max(puts, 1)
        sent = rates(lambda calls: calls.reads)
        return {
            "bootTimestamp": str(self._started_ms),
            "runtime": _format_span(self._clock.now_ms() - self._started_ms),
            "putMessageEntireTimeMax": str(counters.put_waits.longest_ms),
            "putMessageTimesTotal": str(puts),
            "putMessageFailedTimes": str(counters.failed_puts),
            "putMessageSizeTotal": str(size),
            "putMessageDistributeTime": counters.put_waits.formatted(),
            "putMessageAverageSize": str(size / puts),
            "putLatency99": f"{counters.put_waits.percentile_ms(0.99):.2f}",
            "putLatency999": f"{counters.put_waits.percentile_ms(0.999):.2f}",
            "getMessageEntireTimeMax": str(counters.read_waits.longest_ms),
            "putTps": rates(lambda calls: calls.puts),
            "getFoundTps": rates(lambda calls: calls.found_pulls),
            "getMissTps": rates(lambda calls: calls.missed_pulls),
            "getTotalTps": rates(lambda calls: calls.pulls),
            "getTransferredTps": sent,
            # Compat: its name before 5.0, without which clusterList of 4.9 fails.
            "getTransferedTps": sent,
        }

    def _days(self) -> dict[str, str]:
        days, now = self._samples.days, self._samples.totals()
        return {
            "msgPutTotalYesterdayMorning": str(days.yesterday_morning.puts),
            "msgPutTotalTodayMorning": str(days.this_morning.puts),
            "msgPutTotalTodayNow": str(now.puts),
            "msgGetTotalYesterdayMorning": str(days.yesterday_morning.reads),
            "msgGetTotalTodayMorning": str(days.this_morning.reads),
            "msgGetTotalTodayNow": str(now.reads),
        }

    def _waiting(self) -> dict[str, str]:
        config = self._config()
        return {
            "brokerActive": "true",
            "brokerVersionDesc": version_name(OUR_VERSION),
            "brokerVersion": str(OUR_VERSION),
            "startAcceptSendRequestTimeStamp": str(config.accept_sends_ms),
            "sendThreadPoolQueueSize": str(len(self._confirmations)),
            "sendThreadPoolQueueCapacity": str(config.unconfirmed_max),
            "sendThreadPoolQueueHeadWaitTimeMills": str(int(self._confirmations.oldest_wait_ms)),
            "pullThreadPoolQueueSize": str(len(self._reads)),
            "pullThreadPoolQueueCapacity": str(config.long_polls_max),
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
        }

    def _delays(self) -> dict[str, str]:
        not_taken_in, late_ms = self._timers_behind()
        return {
            "timerOffsetBehind": str(not_taken_in),
            # Compat: RocketMQ reports whole seconds.
            "timerReadBehind": str(late_ms // _SECOND_MS),
        } | {
            f"scheduleMessageOffset_{level}": (
                f"{offset},{self._store.end_of(SCHEDULE_TOPIC, level - 1)}"
            )
            for level, offset in self._delay_offsets().items()
        }


def _format_span(span_ms: int) -> str:
    days, rest_ms = divmod(span_ms, _DAY_MS)
    hours, rest_ms = divmod(rest_ms, _HOUR_MS)
    minutes, rest_ms = divmod(rest_ms, _MINUTE_MS)
    seconds = rest_ms // _SECOND_MS
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def format_bytes(count: int) -> str:
    """Format bytes for people, such as 1.5 KiB."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} EiB"
