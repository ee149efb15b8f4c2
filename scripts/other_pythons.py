"""Run tests on the other Pythons that we support, each in a virtual environment of its own.

    python -m scripts.other_pythons tests/unit tests/integration
    python -m scripts.other_pythons --plain tests/unit/client

The classifiers in pyproject.toml say which Pythons those are. They are looked for on the path and
among those of pyenv; one that is not installed is left out with a line that says so. `--plain`
takes seconds instead of minutes: it compiles nothing and installs no Spark.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
ENVIRONMENTS: Final = ROOT / ".cache" / "venvs"
CONSTRAINTS: Final = ROOT / "constraints.txt"

_CLASSIFIER: Final = re.compile(r"Programming Language :: Python :: (3\.\d+)")
_NAME_VERSION: Final = "import sys; print(sys.executable, '%d.%d' % sys.version_info[:2])"
# Networks fail for a moment.
_INSTALL_TRIES: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests on each other Python; returns the exit code."""
    parser = argparse.ArgumentParser(description="Run tests on the other Pythons we support.")
    parser.add_argument("--plain", action="store_true", help="compile nothing, install no Spark")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of pytest")
    given = parser.parse_args(arguments)
    versions = other_versions(_project())
    # Quick ones together; those that start servers one after the other.
    with ThreadPoolExecutor(len(versions) if given.plain else 1) as pool:
        passed = [*pool.map(partial(_try, given.arguments, plain=given.plain), versions)]
    failed = [
        version for version, has_passed in zip(versions, passed, strict=True) if not has_passed
    ]
    if failed:
        print(f"failed on Python {', '.join(failed)}")
    return 1 if failed else 0


def _try(arguments: Sequence[str], version: str, *, plain: bool) -> bool:
    python = find_python(version)
    if python is None:
        print(f"Python {version} is not installed: nothing runs on it", flush=True)
        return True
    own_python = prepare(python, version, plain=plain)
    if own_python is None:
        return False
    own_cache = f"cache_dir={ROOT / '.cache' / f'pytest-{version}'}"
    heading = f"Python {version}, {python}:"
    if not plain:
        print(heading, flush=True)
    ran = subprocess.run(
        [own_python, "-m", "pytest", "-q", "-o", own_cache, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        # Runs side by side would mix their lines; a long one is watched.
        stdout=subprocess.PIPE if plain else None,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if plain:
        print(f"{heading}\n{ran.stdout}", flush=True)
    return ran.returncode == 0


def other_versions(project: dict[str, Any]) -> list[str]:
    """List the Pythons that the classifiers name, but for the one that runs this."""
    named = [_CLASSIFIER.fullmatch(each) for each in project["classifiers"]]
    this = f"{sys.version_info.major}.{sys.version_info.minor}"
    return [found[1] for found in named if found and found[1] != this]


def find_python(version: str) -> Path | None:
    """Find an interpreter of a version that really runs: what pyenv puts on the path may not."""
    for candidate in _candidates(version):
        try:
            ran = subprocess.run(
                [candidate, "-c", _NAME_VERSION], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            continue
        path, _, found = ran.stdout.strip().rpartition(" ")
        if found == version:
            return Path(path)
    return None


def _candidates(version: str) -> Iterator[str]:
    yield f"python{version}"
    if shutil.which("pyenv"):
        ran = subprocess.run(["pyenv", "root"], capture_output=True, text=True, check=True)
        folders = Path(ran.stdout.strip(), "versions").glob(f"{version}.*")
        for folder in sorted(folders, key=_numbers, reverse=True):
            yield str(folder / "bin" / "python")


def _numbers(folder: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", folder.name)]


def prepare(python: Path, version: str, *, plain: bool) -> Path | None:
    """Make an environment with what the tests need; returns its interpreter, None on failure."""
    folder = ENVIRONMENTS / (f"{version}-plain" if plain else version)
    own_python = folder / "bin" / "python"
    ready = folder / ".ready"
    wanted = _digest(python)
    if plain and ready.exists() and ready.read_text() == wanted:
        return own_python
    # This environment's own pip installs into it: making another pip takes longer than using it.
    subprocess.run([python, "-m", "venv", "--clear", "--without-pip", folder], check=True)
    what = _plain_requirements(_project()) if plain else ["--editable", f"{ROOT}[dev]"]
    pip = [sys.executable, "-m", "pip", "--python", str(own_python)]
    command = [*pip, "install", "--quiet", *what]
    for _ in range(_INSTALL_TRIES):
        if subprocess.run(command, env=_install_environment(), check=False).returncode == 0:
            ready.write_text(wanted)
            return own_python
    return None


def _plain_requirements(project: dict[str, Any]) -> list[str]:
    return [*project["dependencies"], *project["optional-dependencies"]["test"]]


def _install_environment() -> dict[str, str]:
    return {
        **os.environ,
        "PIP_CONSTRAINT": str(CONSTRAINTS),
        "PIP_RETRIES": "10",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def _digest(python: Path) -> str:
    """Name what an environment is made from, so that it is made again when that changes."""
    made_from = hashlib.sha256(str(python).encode())
    for path in (ROOT / "pyproject.toml", CONSTRAINTS):
        made_from.update(path.read_bytes())
    return made_from.hexdigest()


def _project() -> dict[str, Any]:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project: dict[str, Any] = described["project"]
    return project


if __name__ == "__main__":
    sys.exit(main())
