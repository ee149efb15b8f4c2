"""Events as JSON lines in a file or a pipe."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import IO, Self

from orbitmq.pipelines.watching.events import Event, encode

log = logging.getLogger(__name__)


@dataclass(slots=True)
class EventsFile:
    """Writes each event at once; a file that cannot be written ends the events, not the run."""

    file: IO[bytes]
    _is_broken: bool = False

    def __call__(self, event: Event) -> None:
        """Write an event."""
        if self._is_broken:
            return
        try:
            self.file.write(encode(event))
            self.file.flush()
        except OSError as error:
            self._is_broken = True
            log.warning("events end here file=%s: %s", self.file.name, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # What is left cannot be written either.
        with contextlib.suppress(OSError):
            self.file.close()
