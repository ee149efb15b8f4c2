"""Refusals: each error has its response code."""

from __future__ import annotations

import pytest

from orbitmq.broker.refusals import code_of
from orbitmq.errors import (
    DiskFullError,
    MessageError,
    NameRuleError,
    OrbitError,
    StoreError,
    TopicMissingError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MessageError("m"), 13),
        (NameRuleError("n"), 29),
        (TopicMissingError("t"), 17),
        (DiskFullError("d"), 14),
        (StoreError("s"), 1),
        (OrbitError("o"), 1),
    ],
)
def test_an_error_has_its_code(error: OrbitError, code: int) -> None:
    assert code_of(error) == code
