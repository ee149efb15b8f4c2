"""Ctrl-C in the main thread, at a known moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import WAIT_SECONDS

SIGNAL_SECONDS = 10


@contextmanager
def interrupted_once(started: threading.Event, noticed: threading.Event) -> Iterator[None]:
    """Send SIGINT to this thread when work has `started`, until it is `noticed`."""
    main_thread = threading.get_ident()

    def interrupt() -> None:
        started.wait(WAIT_SECONDS)
        signal.pthread_kill(main_thread, signal.SIGINT)
        # Python may notice a signal that comes just before it waits for a lock only with the next.
        while not noticed.wait(SIGNAL_SECONDS):
            signal.pthread_kill(main_thread, signal.SIGINT)

    # A shell starts background processes with this signal ignored.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
        thread.join()
