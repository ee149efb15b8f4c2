"""Builds the drivers and fetches the official jars: once, again only when something changed.

A stamp beside the results holds the hash of what they were made from. A file lock keeps parallel
runs apart; the second one finds the work done. `python -m tests.interop.building` builds ahead of a
run, beside other work; it needs nothing that has to be installed first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

HERE = Path(__file__).parent
JAVA_FOLDER = HERE / "java"
GO_FOLDER = HERE / "go"
TARGET_FOLDER = JAVA_FOLDER / "target"
GO_DRIVER = GO_FOLDER / "bin" / "driver"

LINES = ("v4", "v5")
_BUILD_TIMEOUT_S = 900
_TRIES = 3
_PAUSE_S = 10


def is_set(name: str) -> bool:
    """Whether a variable of the environment says yes."""
    return os.environ.get(name, "") not in {"", "0"}


class BuildError(Exception):
    """A driver cannot be built, or a tool for it is missing."""


def java_version(line: str, part: str) -> str:
    """The pinned version of `client` or `server` in a release line."""
    pom = (JAVA_FOLDER / "pom.xml").read_text()
    profile = pom[pom.index(f"<id>{line}</id>") :]
    found = re.search(rf"<rocketmq\.{part}\.version>([^<]+)<", profile)
    assert found is not None, (line, part)
    return found[1]


def go_version() -> str:
    """The pinned version of the Go client."""
    found = re.search(r"rocketmq-client-go/v2 v(\S+)", (GO_FOLDER / "go.mod").read_text())
    assert found is not None
    return found[1]


def build_java() -> str:
    """Fetch the jars of every line and compile the driver against each; returns what from, hashed."""
    poms = sorted(JAVA_FOLDER.glob("pom.xml")) + sorted(JAVA_FOLDER.glob("*/pom.xml"))
    sources = sorted((JAVA_FOLDER / "client" / "src").rglob("*.java"))
    poms_stamp = TARGET_FOLDER / "poms.stamp"
    sources_stamp = TARGET_FOLDER / "sources.stamp"
    with _locked(TARGET_FOLDER):
        poms_hash, sources_hash = _hash(poms), _hash([*poms, *sources])
        if _holds(sources_stamp, sources_hash):
            return sources_hash
        _need("java", "mvn", unless="ORBITMQ_NO_INTEROP=1")
        offline = ["-o"] if _holds(poms_stamp, poms_hash) else []
        for line in LINES:
            if not offline:
                shutil.rmtree(TARGET_FOLDER / line, ignore_errors=True)
            command = ["mvn", "-B", "-q", *offline, "-P", line, "process-classes"]
            if offline:
                _run(command, JAVA_FOLDER)
            else:
                # It remembers what it could not fetch, and does not ask for it again unless told.
                _fetch(command, JAVA_FOLDER, again=["-U"])
            _pack(TARGET_FOLDER / line)
        poms_stamp.write_text(poms_hash)
        sources_stamp.write_text(sources_hash)
    return sources_hash


def _pack(built: Path) -> None:
    """Put the driver into a jar beside the official ones: an archive of classes needs jars."""
    packed = shutil.make_archive(str(built / "driver"), "zip", built / "client" / "classes")
    Path(packed).replace(built / "lib-client" / "driver.jar")


def build_go() -> None:
    """Compile the Go driver."""
    sources = sorted(path for path in GO_FOLDER.glob("*") if path.suffix in {".go", ".mod", ".sum"})
    stamp = GO_DRIVER.parent / "driver.stamp"
    with _locked(GO_DRIVER.parent):
        sources_hash = _hash(sources)
        if _holds(stamp, sources_hash) and GO_DRIVER.exists():
            return
        _need("go", unless="ORBITMQ_NO_GO=1")
        _fetch(["go", "build", "-mod=readonly", "-trimpath", "-o", str(GO_DRIVER), "."], GO_FOLDER)
        stamp.write_text(sources_hash)


def compile_texts(folder: Path, texts: Mapping[str, str], command: list[str]) -> None:
    """Write `texts` (path to text) into `folder`, and compile them there by `command`."""
    wanted = hashlib.sha256(repr((sorted(texts.items()), command)).encode()).hexdigest()
    with making(folder, wanted) as needed:
        if not needed:
            return
        for made in folder.iterdir():
            if made.is_dir():
                shutil.rmtree(made)
        for path, text in texts.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        _run(command, folder)


@contextmanager
def making(folder: Path, made_from: str) -> Iterator[bool]:
    """Whether something has to be made in `folder`, by this process alone; made when left."""
    stamp = folder / "made.stamp"
    with _locked(folder):
        needed = not _holds(stamp, made_from)
        yield needed
        if needed:
            stamp.write_text(made_from)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(HERE)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _holds(stamp: Path, value: str) -> bool:
    return stamp.exists() and stamp.read_text() == value


def _need(*tools: str, unless: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            raise BuildError(f"the interop suite needs {tool}; to do without, set {unless}")


def _fetch(command: list[str], folder: Path, *, again: Sequence[str] = ()) -> None:
    """Run what may have to fetch something: a network that fails for a moment gets another chance.

    `again` are arguments of the tries after the first.
    """
    pause = threading.Event()
    for left in reversed(range(_TRIES)):
        try:
            _run(command, folder)
        except BuildError:
            if not left:
                raise
            pause.wait(_PAUSE_S)
            command = [*command, *again]
            again = ()
        else:
            return


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise BuildError(f"{' '.join(command)}: not done within {late.timeout} s") from late
    if done.returncode:
        raise BuildError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    if not is_set("ORBITMQ_NO_INTEROP"):
        build_java()
        if not is_set("ORBITMQ_NO_GO"):
            build_go()
