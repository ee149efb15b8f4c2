"""Checks of client arguments."""

from __future__ import annotations

import pytest

from orbitmq.client.core.argument_checks import check_flag, check_function
from orbitmq.errors import SettingsError


def test_valid_arguments_pass() -> None:
    check_function("allocation", print)
    check_flag("ordered", False)


def test_a_function_can_be_called() -> None:
    with pytest.raises(SettingsError, match=r"allocation cannot be 5 \(it takes a function\)"):
        check_function("allocation", 5)


@pytest.mark.parametrize("value", ["no", 1, None])
def test_a_flag_is_true_or_false(value: object) -> None:
    with pytest.raises(SettingsError, match=r"ordered cannot be .* \(it takes True or False\)"):
        check_flag("ordered", value)
