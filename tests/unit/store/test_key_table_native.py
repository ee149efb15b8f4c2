"""The compiled form of the key table is what its source says; test_key_table.py runs both forms."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import orbitmq.store

# Loaded as a value without a type: mypy reads the source, this is what was compiled from it.
native: Any = pytest.importorskip(
    "orbitmq.store.key_table_native",
    reason="not compiled; run: pip install --editable .",
    exc_type=ImportError,
)

SOURCE = Path(orbitmq.store.__file__).with_name("key_table_native.py")


def test_the_extension_is_newer_than_its_source() -> None:
    built = Path(native.__file__)

    assert built.suffix == ".so"
    assert built.stat().st_mtime >= SOURCE.stat().st_mtime, "run: pip install --editable ."


def test_the_source_does_not_run_uncompiled() -> None:
    with pytest.raises(ImportError):
        runpy.run_path(str(SOURCE))


def test_a_view_that_cannot_be_written_is_refused() -> None:
    size = 40 + 4 + 20
    with pytest.raises(BufferError):
        native.put_keys(memoryview(bytes(size)), 1, 1, b"", 0)
