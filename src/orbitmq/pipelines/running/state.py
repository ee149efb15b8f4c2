"""The state folder of a pipeline: who runs it, how far its queries are.

| | |
|---|---|
| lock | locked by the process that runs the pipeline |
| checkpoints/sink-NAME/ | Spark's checkpoint of the query of a sink |
| checkpoints/quarantine-NAME/ | that of a quarantine |
| quarantine/NAME/ | the rejected rows, unless the file names another folder |
| quarantine-1/NAME/ | those before the pipeline was reset |
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import SettingsError
from orbitmq.pipelines.plan import Pipeline
from orbitmq.spark.reading.offsets import Offsets, read_stream_offset

LOCK: Final = "lock"
CHECKPOINTS: Final = "checkpoints"
OF_SINK: Final = "sink-"
OF_QUARANTINE: Final = "quarantine-"
# The name of a query, which otherwise is that of its sink.
QUARANTINE_OF: Final = "quarantine of "
# In a checkpoint, the lines of a batch before those of its sources: a version and settings.
_LINES_BEFORE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryState:
    """How far a query is."""

    name: str
    # The last batch that was committed, and when.
    batch: int
    committed_ms: int
    # The next message of each queue that it reads.
    offsets: Offsets

    def lag(self, ends: Offsets) -> int:
        """Messages that are stored, and not in a committed batch; `ends` are those of the queues."""
        topics = {queue.topic for queue in self.offsets}
        return sum(
            max(end - self.offsets.get(queue, 0), 0)
            for queue, end in ends.items()
            if queue.topic in topics
        )


@contextmanager
def locked(pipeline: Pipeline) -> Iterator[None]:
    """Hold the state of a pipeline; raises SettingsError if another process does."""
    if "://" in pipeline.state:
        # Spark notices two runs at their first batch.
        yield
        return
    folder = Path(pipeline.state)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / LOCK).open("w")
    except OSError as error:
        raise SettingsError(
            f"pipeline {pipeline.name} cannot keep its state in {folder}: {error}",
            hint="name another folder, as in state: /var/lib/orbitmq/shop",
        ) from error
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SettingsError(
                f"pipeline {pipeline.name} is running: its state in {folder} is in use",
                hint="stop it first; a copy that shall run beside it needs a state of its own",
            ) from error
        yield


def states(pipeline: Pipeline) -> list[QueryState]:
    """How far the queries of a pipeline are, as their checkpoints say."""
    folder = _folder(pipeline) / CHECKPOINTS
    found = [_state(one) for one in sorted(folder.iterdir())] if folder.is_dir() else []
    return [one for one in found if one is not None]


def reset(pipeline: Pipeline) -> None:
    """Forget how far a pipeline is; what it wrote stays, its quarantines are set aside."""
    with locked(pipeline):
        shutil.rmtree(_folder(pipeline) / CHECKPOINTS, ignore_errors=True)
        quarantine = Path(pipeline.quarantine)
        if "://" not in pipeline.quarantine and quarantine.is_dir():
            asides = (quarantine.with_name(f"{quarantine.name}-{number}") for number in count(1))
            quarantine.rename(next(one for one in asides if not one.exists()))


def _folder(pipeline: Pipeline) -> Path:
    if "://" in pipeline.state:
        raise SettingsError(
            f"the state of pipeline {pipeline.name} is at {pipeline.state}, not on this machine",
            hint=f"look at {pipeline.state}/{CHECKPOINTS} with the tools of that file system",
        )
    return Path(pipeline.state)


def _state(checkpoint: Path) -> QueryState | None:
    batches = [int(one.name) for one in checkpoint.glob("commits/[0-9]*") if one.name.isdigit()]
    if not batches:
        return None
    batch = max(batches)
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[_LINES_BEFORE:]
    offsets: Offsets = {}
    for line in lines:
        # A source that has not read anything yet.
        if line == "-":
            continue
        offsets |= read_stream_offset(msgspec.json.decode(line)).queues
    committed_s = (checkpoint / "commits" / str(batch)).stat().st_mtime
    return QueryState(
        name=_query_of(checkpoint.name),
        batch=batch,
        committed_ms=int(committed_s * 1000),
        offsets=offsets,
    )


def _query_of(folder: str) -> str:
    if folder.startswith(OF_QUARANTINE):
        return f"{QUARANTINE_OF}{folder.removeprefix(OF_QUARANTINE)}"
    return folder.removeprefix(OF_SINK)
