"""Files that a store lacks, or that do not belong to it.

What the names of files and the small files of a store say, before anything is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.store.files.file_names import file_name
from orbitmq.store.opening.parts import OWN_FOLDER
from orbitmq.store.opening.shape import read_shape
from orbitmq.store.readonly.visible_end import Writer
from orbitmq.store.tools.findings import Finding, FindingKind, Findings

if TYPE_CHECKING:
    from orbitmq.store.readonly.log_files import LogFile
    from orbitmq.store.readonly.readonly_store import ReadOnlyStore

_TOPICS_SHOWN_MAX: Final = 20


def check_log_files(store: ReadOnlyStore, findings: Findings) -> None:
    """Report strange files of the log, and files that are missing at its start and its end."""
    for path in store.log.strange_files:
        findings.add(
            Finding(kind=FindingKind.STRANGE_FILE, text="not a file of the log", file=str(path))
        )
    if store.written_by is not Writer.ORBITMQ:
        return
    _check_last_file(store, findings)
    shape = read_shape(store.root / OWN_FOLDER)
    start = store.log.start
    # What our retention deleted is not missing.
    if shape is not None and store.log.files and start > shape.log_start:
        findings.add(
            Finding(
                kind=FindingKind.MISSING_LOG_FILE,
                text=f"the log started at {shape.log_start} and starts at {start}: files from "
                f"{file_name(shape.log_start)} to {file_name(start)} are missing",
                file=str(_missing_path(store, shape.log_start)),
                offset=shape.log_start,
            )
        )


def _check_last_file(store: ReadOnlyStore, findings: Findings) -> None:
    """Report files at the end of the log that saved progress covers."""
    progress = store.state.progress
    end = store.log.room_end
    if progress is not None and progress.flushed > end:
        unfinished = store.log.unfinished
        missing = unfinished.path if unfinished is not None else _missing_path(store, end)
        findings.add(
            Finding(
                kind=FindingKind.MISSING_LOG_FILE,
                text=f"the log was flushed up to {progress.flushed} and its whole files end at "
                f"{end}",
                file=str(missing),
                offset=end,
            )
        )


def _missing_path(store: ReadOnlyStore, offset: int) -> Path:
    return store.log.folders[0] / file_name(offset)


def add_missing_files(findings: Findings, position: int, next_file: LogFile) -> None:
    """Report that files between others are missing, from an offset up to the next file."""
    findings.add(
        Finding(
            kind=FindingKind.MISSING_LOG_FILE,
            text=f"files from {file_name(position)} to {next_file.path.name} are missing",
            file=str(next_file.path.parent / file_name(position)),
            offset=position,
        )
    )


def check_topics_file(store: ReadOnlyStore, findings: Findings, topics: set[str]) -> None:
    """Report that the table of topics is gone, and its copy with it."""
    file = _topics_file(store.root)
    if not topics or not file.parent.is_dir():
        return
    if not file.exists() and not file.with_name(file.name + ".bak").exists():
        shown = ", ".join(sorted(topics)[:_TOPICS_SHOWN_MAX])
        findings.add(
            Finding(
                kind=FindingKind.MISSING_TOPICS,
                text=f"it is missing, and so is its copy; settings of {len(topics)} topics are "
                f"lost: {shown}",
                file=str(file),
            )
        )


def known_topics(root: Path) -> frozenset[str] | None:
    """The broker's topics; None if unknown."""
    try:
        content = _topics_file(root).read_bytes()
        table: Any = java_json.decode(content, dict[str, Any]).get("topicConfigTable")
    except (OSError, ProtocolError):
        return None
    return frozenset(table) if isinstance(table, dict) else None


def _topics_file(root: Path) -> Path:
    return root / "config" / "topics.json"
