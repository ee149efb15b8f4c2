"""Small stores written by the real writer, and ways to damage them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from orbitmq.clock import ManualClock
from orbitmq.record.properties import encode_properties
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.log.draft import Draft
from orbitmq.store.message_store import MessageStore
from orbitmq.store.opening.checkpoint import Checkpoint
from orbitmq.store.retention import RetentionConfig

LOG_FILE_BYTES = 64 * 1024
QUEUE_FILE_BYTES = 50 * 20
INDEX_SLOTS = 100
INDEX_ENTRIES = 400
T0 = 1_700_000_000_000
# Nothing is deleted in the background, even if a test pauses for a while on a nearly full disk.
SELDOM = RetentionConfig(interval_ms=86_400_000)


def config(root: Path, **options: Any) -> StoreConfig:
    return StoreConfig(
        **{
            "root": root,
            "log_file_bytes": LOG_FILE_BYTES,
            "queue_file_bytes": QUEUE_FILE_BYTES,
            "index_slots": INDEX_SLOTS,
            "index_entries": INDEX_ENTRIES,
            "flush_timeout_ms": 60_000,
            **options,
        }
    )


def open_store(root: Path, **options: Any) -> MessageStore:
    return MessageStore(config(root, **options), retention=SELDOM)


def draft(number: int, *, topics: int = 2, queues: int = 2, body_bytes: int = 200) -> Draft:
    return Draft(
        topic=f"topic{number % topics}",
        queue_id=number // topics % queues,
        body=(f"{number}:".encode() * body_bytes)[:body_bytes],
        properties=encode_properties(
            {"KEYS": f"key{number} all", "UNIQ_KEY": f"id{number}", "TAGS": f"tag{number % 3}"}
        ),
        born_ms=T0,
    )


def fill(
    root: Path, count: int = 1000, *, first: int = 0, step_ms: int = 10, **options: Any
) -> None:
    """Write messages, one every `step_ms`, and stop cleanly."""
    clock = ManualClock(T0 + first * step_ms)
    with MessageStore(
        config(root, **{"flush_mode": FlushMode.ASYNC, **options}), retention=SELDOM, clock=clock
    ) as store:
        for number in range(first, first + count):
            store.append(draft(number))
            clock._now_ms += step_ms
        store.publish()


def as_rocketmq(root: Path, *, unclean: bool = False, flushed_ms: int | None = None) -> None:
    """Make a store look as if a RocketMQ broker had written it."""
    for path in (root / "orbitmq").iterdir():
        path.unlink()
    (root / "orbitmq").rmdir()
    if unclean:
        (root / "abort").write_text("1")
    if flushed_ms is not None:
        checkpoint = Checkpoint.read(root / "checkpoint")
        checkpoint.log_ms = flushed_ms
        checkpoint.write(root / "checkpoint")


def change(path: Path, at: int, content: bytes) -> None:
    """Overwrite bytes of a file."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything that a reader could change."""
    return {
        path.relative_to(root).as_posix(): (
            path.stat().st_mtime_ns,
            path.stat().st_size,
            path.read_bytes(),
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


class WriterProcess:
    """A child that writes a store, one command per line; it answers each when done."""

    def __init__(self, root: Path, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.store.written_stores", str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.ask(open=options)

    def ask(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.communicate(timeout=150)


def answer(store: MessageStore) -> None:
    sys.stdout.write(json.dumps({"end": store.visible}) + "\n")
    sys.stdout.flush()


def serve(root: Path) -> None:
    """The child's side: stops cleanly when its input ends."""
    options = json.loads(sys.stdin.readline())["open"]
    if "flush_mode" in options:
        options["flush_mode"] = FlushMode(options["flush_mode"])
    with open_store(root, **options) as store:
        answer(store)
        for line in sys.stdin:
            command = json.loads(line)
            numbers = range(command["first"], command["first"] + command["count"])
            receipts = [store.append(draft(number)) for number in numbers]
            if command.get("confirm", True):
                store.confirm(receipts)
            if command.get("delete_first"):
                store.parts.queues.raise_starts(store.parts.log.delete_first())
            answer(store)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
