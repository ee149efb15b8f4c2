"""Requests of operators: state of a push consumer (307), direct consumption (309)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Final, cast

from orbitmq.client.aio.push.stall_watch import stacks
from orbitmq.client.core.consuming.consume_results import (
    Reply,
    Success,
    concurrent_result,
    ordered_result,
)
from orbitmq.client.core.consuming.flow_control import MIB
from orbitmq.java_json import ObjectKeyed
from orbitmq.protocol.requests.relays import (
    DirectOutcome,
    DirectResult,
    QueueProgress,
    RunningConsumer,
)
from orbitmq.settings import describe

if TYPE_CHECKING:
    from orbitmq.client.aio.group.offset_stores import OffsetStore
    from orbitmq.client.aio.push.listeners import Listener, ReplySender
    from orbitmq.client.core.consuming.consume_speeds import ConsumeSpeeds
    from orbitmq.client.core.consuming.inflight_window import InflightWindow
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.client.core.subscriptions import Subscriptions
    from orbitmq.client.options import PushOptions
    from orbitmq.clock import Clock
    from orbitmq.model.queues import MessageQueue

    Window = InflightWindow[ReceivedMessage]

log = logging.getLogger(__name__)

# Names that RocketMQ's tools look for.
_ORDERED: Final = "PROP_CONSUMEORDERLY"
_CONCURRENCY: Final = "PROP_THREADPOOL_CORE_SIZE"
_STARTED_MS: Final = "PROP_CONSUMER_START_TIMESTAMP"

_SUCCESS: Final = DirectOutcome("CR_SUCCESS")
_LATER: Final = DirectOutcome("CR_LATER")
_RAISED: Final = DirectOutcome("CR_THROW_EXCEPTION")


def running_consumer(  # noqa: PLR0913 - by name
    options: PushOptions,
    *,
    ordered: bool,
    concurrency: int,
    started_ms: int,
    subscriptions: Subscriptions,
    windows: Mapping[MessageQueue, Window],
    offsets: OffsetStore,
    speeds: ConsumeSpeeds,
    with_stacks: bool,
) -> RunningConsumer:
    """Describe the state of a consumer."""
    properties = {
        row.name: row.show(getattr(options, row.field)) for row in describe(type(options))
    }
    properties[_ORDERED] = "true" if ordered else "false"
    properties[_CONCURRENCY] = str(concurrency)
    properties[_STARTED_MS] = str(started_ms)
    return RunningConsumer(
        stacks=stacks() if with_stacks else None,
        queues=ObjectKeyed(
            {
                queue: queue_progress(window, offsets.cached(queue) or 0)
                for queue, window in windows.items()
            }
        ),
        properties=properties,
        speeds={topic: speeds.of(topic) for topic in subscriptions.topics()},
        subscriptions=subscriptions.all(),
    )


def queue_progress(window: Window, commit_offset: int) -> QueueProgress:
    """Describe what a consumer holds of a queue."""
    taken = window.taken
    return QueueProgress(
        cached_messages=window.count,
        cached_min_offset=window.first_offset or 0,
        cached_max_offset=window.last_offset or 0,
        cached_mib=window.bytes // MIB,
        commit_offset=commit_offset,
        consuming_messages=len(taken),
        consuming_min_offset=taken[0].queue_offset if taken else 0,
        consuming_max_offset=taken[-1].queue_offset if taken else 0,
        dropped=window.dropped,
        last_consume_ms=window.last_consume_ms,
        last_lock_ms=window.last_lock_ms,
        last_pull_ms=window.last_pull_ms,
        locked=window.locked,
    )


async def consume_directly(
    listener: Listener,
    message: ReceivedMessage,
    *,
    ordered: bool,
    replies: ReplySender,
    clock: Clock,
) -> DirectResult:
    """Pass a message to the listener at once, independent of its queue; commits nothing."""
    log.info("consuming a message on request message=%r", message)
    started_ms = clock.monotonic_ms()
    given = [message] if listener.takes_lists else message
    remark = None
    try:
        if listener.is_async:
            returned = await cast("Awaitable[object]", listener.function(given))
        else:
            returned = await asyncio.to_thread(listener.function, given)
        result = ordered_result(returned) if ordered else concurrent_result(returned)
        if isinstance(result, Reply):
            await replies.send(message, result)
        outcome = _SUCCESS if isinstance(result, Success) else _LATER
    except Exception as error:
        log.warning("message consumed on request failed message=%r", message, exc_info=error)
        outcome, remark = _RAISED, repr(error)
    return DirectResult(
        outcome=outcome,
        ordered=ordered,
        remark=remark,
        spent_ms=int(clock.monotonic_ms() - started_ms),
    )
