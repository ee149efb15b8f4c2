"""Labels of metrics, as they are written in a file."""

from __future__ import annotations

import pytest

from orbitmq.broker.statistics.config import MetricsConfig, parse_labels
from orbitmq.errors import SettingsError


def test_labels_are_read_in_pairs() -> None:
    assert parse_labels("") == {}
    assert parse_labels("zone:a,rack:12") == {"zone": "a", "rack": "12"}


@pytest.mark.parametrize("text", ["zone", "zone:a:b", ":a", "no-name:a"])
def test_labels_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="invalid label"):
        MetricsConfig(labels=text)
