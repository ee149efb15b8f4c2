"""The processes of one filter function: bounded, timed, killed when they hang.

Processes, not threads: a function that hangs can only be ended with its process, and one that
computes does not take the loop's time. A function has processes of its own, so that it delays no
other; the messages that wait for it are bounded, too.

Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.clock import time_limit
from orbitmq.errors import FilterFunctionError, RequestRefusedError
from orbitmq.filterserver.worker import LENGTH, Batch, Outcome
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from orbitmq.filterserver.config import FilterServerConfig

log = logging.getLogger(__name__)

# Importing a function may take long, as it does with data frames; a hang has to end, too.
_START_MS_MAX: Final = 30_000
# A process ends itself when its function hangs; this much later it is killed.
_GRACE_MS: Final = 1000
# A pull that waits longer for a process is refused: its consumer would give up soon.
_WAIT_MS_MAX: Final = 8_000
_OUTCOME_BYTES_MAX: Final = 16 * 1024 * 1024
_outcomes: Final = msgspec.msgpack.Decoder(Outcome)


class FilterWorkers:
    """Runs one filter function in processes."""

    def __init__(self, name: str, config: FilterServerConfig, *, clock: Clock) -> None:
        self.name = name
        self._config = config
        self._clock = clock
        self._free = asyncio.Semaphore(config.workers_per_filter)
        # Started and not in use, the one used last at the end.
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._waiting_bytes = 0
        self._stopped = False

    @property
    def process_ids(self) -> list[int]:
        """The processes that run now."""
        return sorted(worker.process.pid for worker in (*self._idle, *self._busy))

    async def run(self, batch: Batch) -> Outcome:
        """Run the function over a batch; raises if it fails or is too busy."""
        size = len(batch.records)
        if self._waiting_bytes and self._waiting_bytes + size > self._config.waiting_bytes_max:
            raise self._busy_error(f"{self._waiting_bytes} bytes of messages wait for it")
        self._waiting_bytes += size
        try:
            try:
                async with time_limit(self._clock, _WAIT_MS_MAX):
                    await self._free.acquire()
            except TimeoutError as error:
                raise self._busy_error(f"no process was free within {_WAIT_MS_MAX} ms") from error
            try:
                return await self._run(batch)
            finally:
                self._free.release()
        finally:
            self._waiting_bytes -= size

    async def end_idle(self) -> None:
        """End processes that have not been used for long."""
        used_before_ms = self._clock.monotonic_ms() - self._config.worker_idle_seconds_max * 1000
        while self._idle and self._idle[0].used_ms < used_before_ms:
            await self._idle.pop(0).end()

    async def stop(self) -> None:
        """Kill all processes."""
        self._stopped = True
        workers = [*self._idle, *self._busy]
        self._idle.clear()
        await asyncio.gather(*(worker.end() for worker in workers))

    async def _run(self, batch: Batch) -> Outcome:
        worker = self._idle.pop() if self._idle else await self._start()
        self._busy.add(worker)
        healthy = False
        worker.asked_ms = self._clock.monotonic_ms()
        try:
            async with time_limit(self._clock, self._config.time_limit_ms + _GRACE_MS):
                outcome = await worker.ask(batch)
            healthy = not self._stopped
        except TimeoutError as error:
            raise self._too_slow() from error
        except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError) as error:
            raise await self._ended(worker) from error
        finally:
            if healthy:
                worker.used_ms = self._clock.monotonic_ms()
                self._idle.append(worker)
            else:
                await worker.end()
            self._busy.discard(worker)
        return outcome

    async def _start(self) -> _Worker:
        config = self._config
        worker = _Worker(
            await asyncio.create_subprocess_exec(
                sys.executable,
                # The folder it is started in is no place to import from.
                "-P",
                "-m",
                "orbitmq.filterserver.worker",
                self.name,
                str(config.time_limit_ms),
                str(config.worker_memory_bytes_max),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # Ctrl-C reaches only us; we end the process in our own order.
                start_new_session=True,
            ),
            self._clock.monotonic_ms(),
        )
        self._busy.add(worker)
        ready = False
        try:
            async with time_limit(self._clock, _START_MS_MAX):
                loaded = await worker.read()
            if loaded.failure:
                raise FilterFunctionError(self.name, loaded.failure)
            ready = True
        except TimeoutError as error:
            raise FilterFunctionError(
                self.name, f"cannot be loaded: it took longer than {_START_MS_MAX} ms"
            ) from error
        except (asyncio.IncompleteReadError, OSError, msgspec.MsgspecError) as error:
            raise await self._ended(worker) from error
        finally:
            if not ready:
                await worker.end()
            self._busy.discard(worker)
        log.info("filter process started filter=%s process=%d", self.name, worker.process.pid)
        return worker

    async def _ended(self, worker: _Worker) -> FilterFunctionError:
        """Say why a process ended, or broke the protocol."""
        spent_ms = self._clock.monotonic_ms() - worker.asked_ms
        if worker.asked_ms and spent_ms >= self._config.time_limit_ms:
            return self._too_slow()
        code = await worker.end()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return FilterFunctionError(
            self.name, f"its process ended with {how}", hint="its log may say why"
        )

    def _too_slow(self) -> FilterFunctionError:
        log.warning("filter process killed, it took too long filter=%s", self.name)
        return FilterFunctionError(
            self.name,
            f"it took longer than {self._config.time_limit_ms} ms and was killed",
            hint="filterTimeLimitMillis sets the limit; the log of the filter server shows where",
        )

    def _busy_error(self, cause: str) -> RequestRefusedError:
        return RequestRefusedError(
            ResponseCode.SYSTEM_BUSY,
            f"filter {self.name} is too slow for its consumers: {cause}",
            hint="make it faster, raise workersPerFilter, or start more filter servers",
        )


class _Worker:
    """One process, and the pipes to it."""

    def __init__(self, process: asyncio.subprocess.Process, now_ms: float) -> None:
        self.process = process
        self.used_ms = now_ms
        # When the current batch was given to it; 0 before the first.
        self.asked_ms = 0.0

    async def ask(self, batch: Batch) -> Outcome:
        """Give a batch to the function, and wait for the outcome."""
        assert self.process.stdin is not None
        content = msgspec.msgpack.encode(batch)
        self.process.stdin.write(LENGTH.pack(len(content)))
        self.process.stdin.write(content)
        await self.process.stdin.drain()
        return await self.read()

    async def read(self) -> Outcome:
        """Wait for an outcome."""
        assert self.process.stdout is not None
        (length,) = LENGTH.unpack(await self.process.stdout.readexactly(LENGTH.size))
        if length > _OUTCOME_BYTES_MAX:
            raise OSError(f"an outcome of {length} bytes")
        return _outcomes.decode(await self.process.stdout.readexactly(length))

    async def end(self) -> int:
        """Kill the process, and those it started, unless it has ended; returns its exit code."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        return await self.process.wait()
