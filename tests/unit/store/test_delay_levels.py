"""Delay levels as text."""

from __future__ import annotations

import pytest

from orbitmq.errors import SettingsError
from orbitmq.store.delay_levels import parse_delay_levels


def test_levels_are_read_in_milliseconds() -> None:
    assert parse_delay_levels("1s 5m 2h 1d") == (1_000, 300_000, 7_200_000, 86_400_000)
    assert parse_delay_levels("") == ()


@pytest.mark.parametrize("text", ["5", "s", "-5s", "5w", "1.5s", "\u0665s"])
def test_an_invalid_delay_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="is not a delay"):
        parse_delay_levels(f"1s {text}")
