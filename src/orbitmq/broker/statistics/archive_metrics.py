"""Metrics of archives: what each has left to do, and what is kept for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

from orbitmq.model.archives import KnownArchives

if TYPE_CHECKING:
    from orbitmq.model.archives import ArchiveFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveState:
    """The archives of a broker at one moment."""

    known: KnownArchives = field(default_factory=KnownArchives)
    figures: Mapping[str, ArchiveFigures] = field(default_factory=dict)


def archive_families(
    state: ArchiveState, labels: Mapping[str, str], *, now_ms: int
) -> Iterator[Metric]:
    """Make the metrics of archives."""
    unknown = GaugeMetricFamily(
        "orbitmq_archives_unknown",
        "1 while every log file is kept, since archives may be missing.",
        labels=[*labels],
    )
    unknown.add_metric([*labels.values()], int(bool(state.known.unknown)))
    yield unknown
    of_archive = (*labels, "archive", "topic")
    families = tuple(
        GaugeMetricFamily(f"orbitmq_archive_{name}", about, labels=of_archive)
        for name, about in (
            ("unarchived_messages", "Messages that an archive lacks."),
            ("held_log_bytes", "Bytes of the log from the oldest of these on."),
            ("oldest_seconds", "Seconds since the oldest of these was stored."),
            ("held_files", "Log files past their time that are kept for the archive."),
            ("missed_messages", "Messages that were deleted before they were archived."),
        )
    )
    for name, figures in state.figures.items():
        archive = state.known.archives.get(name)
        if archive is None:
            continue
        values = (
            figures.unarchived_messages,
            figures.held_log_bytes,
            max(now_ms - figures.oldest_ms, 0) / 1000 if figures.oldest_ms else 0,
            figures.held_files,
            figures.missed_messages,
        )
        for family, value in zip(families, values, strict=True):
            family.add_metric([*labels.values(), name, archive.topic], value)
    yield from families
