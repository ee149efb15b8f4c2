"""Requests for upkeep: codes without fields."""

from __future__ import annotations

import pytest

from orbitmq.protocol.headers import Header
from orbitmq.protocol.requests.maintenance import (
    CleanExpiredQueues,
    CleanUnusedTopics,
    DeleteExpiredLogs,
)


@pytest.mark.parametrize(
    ("header", "code"),
    [(CleanExpiredQueues(), 306), (CleanUnusedTopics(), 316), (DeleteExpiredLogs(), 329)],
)
def test_a_request_has_its_code_and_no_fields(header: Header, code: int) -> None:
    assert code == header.CODE
    assert header.encode() == {}
    assert type(header).decode({}) == header
