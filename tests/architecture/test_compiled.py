"""Compiled modules are what their sources say."""

from __future__ import annotations

import importlib
import os
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
# What setup.py finds: each is named like its compiled module, and ends with `.py` or `.pxd`.
FORMS = sorted({path.with_suffix("") for path in SOURCES.glob("**/compiled/*_cython.p*")})
# The others are compiled from a source one folder up, which runs as plain Python, too.
ONLY_COMPILED = [form for form in FORMS if form.with_suffix(".py").exists()]
CIMPORT = re.compile(r"from (?:cython\.cimports\.)?(orbitmq[.\w]*) c?import")


def _module(form: Path) -> str:
    return ".".join(form.relative_to(SOURCES).parts)


def _sources(form: Path) -> Iterator[Path]:
    """Find what a module is compiled from: its own files, and the definitions that they include."""
    plain = form.parents[1] / f"{form.name.removesuffix('_cython')}.py"
    waiting = [form.with_suffix(".pxd"), form.with_suffix(".py")]
    if form not in ONLY_COMPILED:
        waiting.append(plain)
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path.exists() and path not in seen:
            seen.add(path)
            yield path
            included = CIMPORT.findall(path.read_text())
            waiting += [SOURCES / f"{name.replace('.', '/')}.pxd" for name in included]


@pytest.mark.parametrize("form", FORMS, ids=_module)
def test_the_extension_is_newer_than_its_sources(form: Path) -> None:
    try:
        module = importlib.import_module(_module(form))
    except ImportError:
        if "ORBITMQ_MUST_BE_COMPILED" in os.environ:
            raise
        pytest.skip("not compiled; run: pip install --editable .")
    built = Path(str(module.__file__))

    assert built.suffix == ".so"
    for source in _sources(form):
        assert built.stat().st_mtime >= source.stat().st_mtime, "run: pip install --editable ."


@pytest.mark.parametrize("form", ONLY_COMPILED, ids=_module)
def test_the_source_does_not_run_uncompiled(form: Path) -> None:
    with pytest.raises(ImportError):
        runpy.run_path(str(form.with_suffix(".py")))


def test_compiled_folders_hold_nothing_else() -> None:
    for path in SOURCES.glob("**/compiled/*.py"):
        assert path.name == "__init__.py" or path.with_suffix("") in ONLY_COMPILED, path


def test_a_form_that_is_compiled_of_a_plain_source_has_one() -> None:
    assert FORMS
    for form in FORMS:
        assert any(source.suffix == ".py" for source in _sources(form)), form
