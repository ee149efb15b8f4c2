"""Options of the metrics that a broker exports to Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from orbitmq.errors import SettingsError
from orbitmq.settings import option


class Exporter(StrEnum):
    """Where metrics go."""

    NONE = "DISABLE"
    PROMETHEUS = "PROM"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Whether and where metrics are exported."""

    exporter: Exporter = option(
        Exporter.NONE,
        java="metricsExporterType",
        doc="PROM exports metrics to Prometheus over HTTP, DISABLE exports none.",
    )
    port: int = option(
        5557,
        low=0,
        high=65_535,
        java="metricsPromExporterPort",
        doc="Port that Prometheus reads metrics from; 0 picks a free one.",
    )
    host: str = option(
        "",
        java="metricsPromExporterHost",
        default_shown="bindAddress",
        doc="Address that Prometheus reads metrics from.",
    )
    labels: str = option(
        "",
        java="metricsLabel",
        doc="Extra labels of every metric, as name:value,name:value.",
    )

    def __post_init__(self) -> None:
        """Refuse invalid labels."""
        parse_labels(self.labels)


def parse_labels(text: str) -> dict[str, str]:
    """Parse labels written as name:value,name:value."""
    labels: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, colon, value = part.partition(":")
        if not colon or not name.isidentifier() or ":" in value:
            raise SettingsError(
                f"metricsLabel: invalid label {part!r}", hint="write name:value,name:value"
            )
        labels[name] = value
    return labels
