"""Chooses where a listener runs: a plain one in threads, an async one on the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.aio.push.listener_tasks import ListenerTasks
from orbitmq.client.aio.push.listener_threads import ListenerThreads

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from orbitmq.client.aio.push.listeners import ListenerCall, ListenerPool, OnFinished


def listener_pool(
    call: ListenerCall,
    on_finished: OnFinished,
    *,
    concurrency: int,
    name: str,
    executor: Executor | None = None,
) -> ListenerPool:
    """Make what calls the listener."""
    if call.is_async:
        return ListenerTasks(call, concurrency=concurrency, on_finished=on_finished, name=name)
    return ListenerThreads(
        call, concurrency=concurrency, on_finished=on_finished, name=name, executor=executor
    )
