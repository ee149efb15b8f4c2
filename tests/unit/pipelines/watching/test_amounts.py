"""Numbers as people read them."""

from __future__ import annotations

import pytest

from orbitmq.pipelines.watching.amounts import bytes_text, count_text, span_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (0.25, "0.25"), (2.54, "2.5"), (7, "7"), (123.4, "123"), (9876, "9,876"), (12_345, "12.3 k"),
     (4_000_000, "4 M"), (3e18, "3,000 P")],
)  # fmt: skip
def test_counts(count: float, text: str) -> None:
    assert count_text(count) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1_234_567, "1.23 MB")])
def test_bytes(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.25, "250 ms"), (3.21, "3.2 s"), (59.9, "1 min"), (12.4, "12 s"),
     (245, "4 min 5 s"), (7380, "2 h 3 min"), (453_600, "5 d 6 h")],
)  # fmt: skip
def test_spans(seconds: float, text: str) -> None:
    assert span_text(seconds) == text
