"""The compiled form of the key table is what its source says; test_key_table.py runs both forms."""

from __future__ import annotations

from typing import Any

import pytest

# Loaded as a value without a type: mypy reads the source, this is what was compiled from it.
native: Any = pytest.importorskip(
    "orbitmq.store.index.compiled.key_table_cython",
    reason="not compiled; run: pip install --editable .",
    exc_type=ImportError,
)


def test_a_view_that_cannot_be_written_is_refused() -> None:
    size = 40 + 4 + 20
    with pytest.raises(BufferError):
        native.put_keys(memoryview(bytes(size)), 1, 1, b"", 0)
