"""Builds the compiled forms of the hot path; everything else is in pyproject.toml.

A source is compiled for standing in a folder `compiled` under a name that ends with `_cython.py`.
An `x_cython.pxd` without such a source holds the C types of `x.py` one folder up, which is compiled
under that name and runs as plain Python, too.

They are optional: without a C compiler or zlib's headers the plain forms are used.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = Path("src")
JOBS = os.cpu_count() or 1


def source_of(form: Path) -> Path:
    """Find what the compiled module at a path, without its suffix, is compiled from."""
    own = form.with_suffix(".py")
    return own if own.exists() else form.parents[1] / f"{form.name.removesuffix('_cython')}.py"


forms = {path.with_suffix("") for path in SOURCES.glob("**/compiled/*_cython.p*")}
extensions = cythonize(
    [
        Extension(".".join(form.relative_to(SOURCES).parts), [str(source_of(form))])
        for form in sorted(forms)
    ],
    include_path=[str(SOURCES)],
    build_dir="build/cython",
    nthreads=JOBS,
)
for extension in extensions:
    # cythonize() makes new objects and drops the mark, so it is set on what it returns.
    extension.optional = True

setup(ext_modules=extensions, options={"build_ext": {"parallel": JOBS}})
