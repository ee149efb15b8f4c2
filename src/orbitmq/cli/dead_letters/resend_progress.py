"""How far a resend of dead letters has come, in a file, so that it can resume.

Layout, JSON, one object a line:
    {"group": …, "to": …, …}                            what is sent, in the first line
    {"sending": ID, "broker": …, "queue": …, "offset": …}  before each send
    {"sent": ID of the copy}                            after its acknowledgement

In each queue, dead letters are sent in their order, so the last line of a queue says how far it is.

Crash: a last line without its end is dropped. A letter with the first line and without the second
may have been sent, and is sent again; the next run says so.
"""

from __future__ import annotations

import fcntl
import json
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Self

from orbitmq.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from orbitmq.client.core.consuming.received_message import ReceivedMessage


@dataclass(slots=True, eq=False)
class ResendProgress:
    """The progress of one resend, kept in a file if there is one."""

    _file: IO[str] | None = None
    # What the first run was asked to send; empty for a new file.
    plan: dict[str, Any] = field(default_factory=dict)
    # Copies that were acknowledged, in all runs.
    sent: int = 0
    # The letter whose copy may or may not have been sent when an earlier run ended.
    unsure: str = ""
    _last: str = ""
    _done: dict[tuple[str, int], int] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> ResendProgress:
        """Open a file, a new one or that of an earlier run."""
        try:
            file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise SettingsError(
                f"cannot write {path}: {error.strerror}", hint="name another file"
            ) from error
        progress = cls(file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            progress._load(file)
        except BlockingIOError as error:
            file.close()
            raise SettingsError(
                f"another command is sending with the progress in {path}", hint="wait for its end"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            file.close()
            raise SettingsError(
                f"{path} has no progress of a resend: {error}", hint="name a new file"
            ) from error
        return progress

    def _load(self, file: IO[str]) -> None:
        file.seek(0)
        good = 0
        at: tuple[str, int, int] | None = None
        # Not by iteration, which forbids asking for the position.
        while (line := file.readline()).endswith("\n"):
            good = file.tell()
            row = json.loads(line)
            if not self.plan:
                self.plan = dict(row)
                row["group"]
            elif "sending" in row:
                at = str(row["broker"]), int(row["queue"]), int(row["offset"])
                self.unsure = str(row["sending"])
            elif at is not None:
                row["sent"]
                broker, queue, offset = at
                self._done[broker, queue] = offset
                self.sent += 1
                at, self._last, self.unsure = None, self.unsure, ""
        file.seek(good)
        file.truncate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def is_kept(self) -> bool:
        """Whether a later run can resume."""
        return self._file is not None

    @property
    def last(self) -> str:
        """The id of the last letter of which a copy was acknowledged."""
        return self._last

    def start(self, plan: dict[str, Any]) -> None:
        """Note what is sent, at the first run."""
        self.plan = plan
        self._write(plan)

    def has(self, message: ReceivedMessage) -> bool:
        """Whether a letter was sent by an earlier run."""
        done = self._done.get((message.queue.broker_name, message.queue_id), -1)
        return message.queue_offset <= done

    def begin(self, message: ReceivedMessage) -> None:
        """Note that a letter is about to be sent."""
        self.unsure = message.message_id
        self._write(
            {
                "sending": message.message_id,
                "broker": message.queue.broker_name,
                "queue": message.queue_id,
                "offset": message.queue_offset,
            }
        )

    def end(self, copy_id: str) -> None:
        """Note that the copy was acknowledged."""
        self.sent += 1
        self._last, self.unsure = self.unsure, ""
        self._write({"sent": copy_id})

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            # To the system: what this process has said survives its own end, however that comes.
            self._file.flush()
