"""Recall handles: each names one message, or is refused."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from orbitmq.errors import RecallHandleError
from orbitmq.model.recall_handles import RecallHandle


def handle(unique_id: str = "A") -> RecallHandle:
    return RecallHandle(
        topic="T", broker_name="broker-a", time_ms=1_700_000_001_000, unique_id=unique_id
    )


def test_a_handle_has_the_text_that_rocketmq_writes() -> None:
    text = handle("7F00000100002A139A5500000000000A").encode()

    assert text == (
        "djEgVCBicm9rZXItYSAxNzAwMDAwMDAxMDAwIDdGMDAwMDAxMDAwMDJBMTM5QTU1MDAwMDAwMDAwMDBB"
    )


@pytest.mark.parametrize("unique_id", ["A", "a b", " a", "a ", "a  b", "ü+~", "L" * 255])
def test_an_id_comes_back_whole(unique_id: str) -> None:
    text = handle(unique_id).issued

    assert text is not None
    assert RecallHandle.decode(text) == handle(unique_id)
    assert RecallHandle.decode(text.rstrip("=")) == handle(unique_id)


@pytest.mark.parametrize("unique_id", ["", "L" * 256, "ü" * 128, "L" * 4000, "\ud800"])
def test_no_handle_is_issued_that_would_name_another_message(unique_id: str) -> None:
    assert handle(unique_id).issued is None


@pytest.mark.parametrize("change", [{"topic": "T U"}, {"broker_name": "a b"}, {"time_ms": -1}])
def test_no_handle_is_issued_with_other_parts_that_cannot_be_read(change: dict[str, Any]) -> None:
    assert replace(handle(), **change).issued is None


def test_a_handle_that_is_too_long_is_refused_rather_than_cut() -> None:
    text = handle("L" * 4000).encode()

    with pytest.raises(RecallHandleError, match="above the limit of 4,096"):
        RecallHandle.decode(text)


@pytest.mark.parametrize(
    "content", ["", "v1", "v2 T b 1 A", "v1 T b x A", "v1 T b -1 A", "v1 T b 1", "v1 T b 1 "]
)
def test_a_text_that_is_no_handle_is_refused(content: str) -> None:
    with pytest.raises(RecallHandleError, match="not valid"):
        RecallHandle.decode(base64.urlsafe_b64encode(content.encode()).decode())
