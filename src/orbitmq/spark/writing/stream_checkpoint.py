"""What a stream's checkpoint says about a batch: its query and source range.

Spark writes `offsets/N` before batch N runs, and never again: a batch that is repeated has the same
file. It holds where the batch ends in each source, and when it was planned; so a copy of the
checkpoint that plans batches of its own has other files under the same numbers.

Read beside the driver, on whatever file system the checkpoint is.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.fs as pa_fs

from orbitmq.protocol.requests.staged_writes import SourceRange

log = logging.getLogger(__name__)

_DIGEST_LENGTH: Final = 32
_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
_UNREADABLE: Final = (OSError, pa.ArrowException, ValueError)
# Hadoop's names of file systems that Arrow knows by another.
_ARROW_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}

# Checkpoints that could not be read, which is logged.
_warned: set[str] = set()


class _Metadata(msgspec.Struct):
    """The file `metadata` of a checkpoint."""

    id: str


class StreamCheckpoint:
    """The checkpoint of a stream."""

    def __init__(self, location: str) -> None:
        self._location = location

    def query(self) -> str | None:
        """Spark's id of the query; None if the checkpoint cannot be read."""
        if self._location in _warned:
            # Finding out may take a remote file system long, so it is tried once per process.
            return None
        try:
            return msgspec.json.decode(self._read("metadata"), type=_Metadata).id
        except (*_UNREADABLE, msgspec.MsgspecError) as error:
            self._warn(error)
            return None

    def source_range(self, query: str, batch: int) -> SourceRange | None:
        """The digests of where a batch of a query starts and ends; None if they cannot be read."""
        noted = self.query()
        if noted != query:
            # A path without a scheme may be meant for another file system.
            self._warn(f"it is the checkpoint of query {noted}")
            return None
        try:
            end = self._digest(batch)
        except _UNREADABLE as error:
            self._warn(error)
            return None
        try:
            start = self._digest(batch - 1)
        except _UNREADABLE:
            # The first batch has none before it; a later one may lack the file.
            start = ""
        return SourceRange(start=start, end=end)

    def _digest(self, batch: int) -> str:
        return hashlib.sha256(self._read(f"offsets/{batch}")).hexdigest()[:_DIGEST_LENGTH]

    def _read(self, name: str) -> bytes:
        system, path = _file_system(self._location)
        with system.open_input_stream(f"{path}/{name}") as stream:
            content: bytes = stream.read(_FILE_BYTES_MAX)
        return content

    def _warn(self, reason: object) -> None:
        if self._location not in _warned:
            _warned.add(self._location)
            log.warning(
                "the checkpoint cannot be read beside the driver, so a copy of it would not be "
                "noticed checkpoint=%s reason=%s",
                self._location,
                reason,
            )


def checkpoint_location(own: str, folder: str | None, query_name: str) -> str:
    """Where a stream keeps its checkpoint; empty if that is not known.

    Args:
        own: the option checkpointLocation.
        folder: the session's folder for checkpoints; a stream without a name has a new one in it
            with every start.
        query_name: the name of the query.
    """
    if own:
        return own
    return f"{folder.rstrip('/')}/{query_name}" if folder and query_name else ""


def _file_system(location: str) -> tuple[pa_fs.FileSystem, str]:
    parts = urlsplit(location)
    # A single letter is a drive of Windows.
    if len(parts.scheme) <= 1:
        return pa_fs.LocalFileSystem(), str(Path(location).absolute())
    if parts.scheme == "file":
        return pa_fs.LocalFileSystem(), unquote(parts.path)
    scheme = _ARROW_SCHEMES.get(parts.scheme, parts.scheme)
    system, path = pa_fs.FileSystem.from_uri(parts._replace(scheme=scheme).geturl())
    return system, path.rstrip("/")
