"""Labels of metrics, as written in a config file."""

from __future__ import annotations

import pytest

from orbitmq.broker.statistics.config import MetricsConfig, parse_labels
from orbitmq.errors import SettingsError


def test_labels_are_parsed_as_pairs() -> None:
    assert parse_labels("") == {}
    assert parse_labels("zone:a,rack:12") == {"zone": "a", "rack": "12"}


@pytest.mark.parametrize("text", ["zone", "zone:a:b", ":a", "no-name:a"])
def test_invalid_labels_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="invalid label"):
        MetricsConfig(labels=text)
