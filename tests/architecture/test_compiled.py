"""Compiled modules are what their sources say."""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "orbitmq"
# As in setup.py: each module, and what it is compiled from.
MODULES = {
    "record.native": ("record/native.py", "record/record_writing.pxd"),
    "record.batch_records_native": (
        "record/batch_records_native.py",
        "record/record_writing.pxd",
    ),
    "store.key_table_native": ("store/key_table_native.py",),
    "store.appender_native": ("store/appender.py", "store/appender_native.pxd"),
    "protocol.plain_batches_native": ("protocol/plain_batches_native.py",),
    "protocol.plain_sends_native": ("protocol/plain_sends_native.py",),
    "spark.messages_native": ("spark/messages_native.py",),
    "spark.rows_native": ("spark/rows_native.py", "spark/row_texts.pxd"),
}
# These have a plain form of another name.
ONLY_COMPILED = [sources[0] for sources in MODULES.values() if sources[0].endswith("native.py")]


@pytest.mark.parametrize("name", MODULES)
def test_the_extension_is_newer_than_its_sources(name: str) -> None:
    try:
        module = importlib.import_module(f"orbitmq.{name}")
    except ImportError:
        pytest.skip("not compiled; run: pip install --editable .")
    built = Path(str(module.__file__))

    assert built.suffix == ".so"
    for source in MODULES[name]:
        newest = (PACKAGE / source).stat().st_mtime
        assert built.stat().st_mtime >= newest, "run: pip install --editable ."


@pytest.mark.parametrize("source", ONLY_COMPILED)
def test_the_source_does_not_run_uncompiled(source: str) -> None:
    with pytest.raises(ImportError):
        runpy.run_path(str(PACKAGE / source))


def test_every_extension_is_looked_at() -> None:
    setup = (PACKAGE.parents[1] / "setup.py").read_text()

    assert setup.count("Extension(") == len(MODULES)
    for name in MODULES:
        assert f'"orbitmq.{name}"' in setup
