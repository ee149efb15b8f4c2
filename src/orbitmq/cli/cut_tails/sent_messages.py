"""Which messages of a cut tail were sent again, in a file beside it.

Layout of `<tail>/resent`, JSON, one object a line:
    {"sending": OFFSET}             before each send: where the message is in the log that was cut
    {"sent": OFFSET, "id": ID}      after its acknowledgement, or once the cluster had it

Crash: a last line without its end is dropped. A message with the first line and without the second
may have been sent: the next run looks for it by its id before it sends it.
"""

from __future__ import annotations

import fcntl
import json
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final, Self

from orbitmq.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from orbitmq.store.opening.cut_intent import Cut

_NAME: Final = "resent"


@dataclass(slots=True, eq=False)
class SentMessages:
    """The messages of a tail that were sent again."""

    offsets: set[int] = field(default_factory=set)
    _file: IO[str] | None = None

    @classmethod
    def read(cls, cut: Cut) -> SentMessages:
        """Read what earlier runs sent."""
        path = _path(cut)
        if not path.exists():
            return cls()
        with path.open(encoding="utf-8") as file:
            sent = cls()
            sent._load(file, path)
        return sent

    @classmethod
    def open(cls, cut: Cut) -> SentMessages:
        """Read what earlier runs sent, to add to it; one command at a time may."""
        path = _path(cut)
        try:
            file = path.open("a+", encoding="utf-8")
        except OSError as error:
            raise SettingsError(
                f"cannot write {path}: {error.strerror}",
                hint="run it as the user of the broker: the file says what was sent already",
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sent = cls(_file=file)
            file.seek(0)
            good = sent._load(file, path)
            file.seek(good)
            file.truncate()
        except BlockingIOError as error:
            file.close()
            raise SettingsError(
                f"another command is sending the messages of {cut.saved_path}",
                hint="wait for its end",
            ) from error
        except BaseException:
            file.close()
            raise
        return sent

    def _load(self, file: IO[str], path: Path) -> int:
        """Read whole lines; returns where they end."""
        good = 0
        try:
            # Not by iteration, which forbids asking for the position.
            while (line := file.readline()).endswith("\n"):
                row = json.loads(line)
                good = file.tell()
                if "sent" in row:
                    self.offsets.add(int(row["sent"]))
        except (ValueError, TypeError) as error:
            raise SettingsError(
                f"{path} does not say which messages were sent: {error}",
                hint="move it away; then messages with ids that the cluster has are still not sent "
                "twice",
            ) from error
        return good

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

    def begin(self, offset: int) -> None:
        """Note that a message is about to be sent."""
        self._write({"sending": offset})

    def end(self, offset: int, message_id: str) -> None:
        """Note that the cluster has it."""
        self.offsets.add(offset)
        self._write({"sent": offset, "id": message_id})

    def _write(self, row: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(row) + "\n")
        # To the system: what this process has said survives its own end, however that comes.
        self._file.flush()


def _path(cut: Cut) -> Path:
    return cut.saved_path / _NAME
