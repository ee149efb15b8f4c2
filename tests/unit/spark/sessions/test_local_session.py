"""How Spark is set up; tests/spark starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import orbitmq.spark
from orbitmq.spark.sessions.local_session import SETTINGS, environment_for, session, settings_for


def test_tasks_run_on_the_given_cores_with_three_attempts() -> None:
    settings = settings_for(4, {})

    assert settings["spark.master"] == "local[4,3]"
    assert settings["spark.sql.shuffle.partitions"] == "4"


@pytest.mark.parametrize("name", [*SETTINGS, "spark.master", "spark.sql.shuffle.partitions"])
def test_the_caller_can_override_each_setting(name: str) -> None:
    assert settings_for(2, {name: "other"})[name] == "other"


def test_settings_of_the_caller_are_added_to_ours() -> None:
    settings = settings_for(2, {"spark.sql.ansi.enabled": "false"})

    assert settings.keys() == settings_for(2, {}).keys() | {"spark.sql.ansi.enabled"}


def test_workers_run_the_interpreter_of_this_process() -> None:
    assert environment_for({})["PYSPARK_PYTHON"] == sys.executable


def test_the_environment_of_the_user_is_kept() -> None:
    own = {"PYSPARK_PYTHON": "python3.12", "SPARK_LOCAL_IP": "10.0.0.1", "OTHER": "x"}

    assert environment_for(own).items() >= own.items()


def test_workers_import_what_is_installed_and_compiled(tmp_path: Path) -> None:
    home = Path(environment_for({"XDG_CACHE_HOME": str(tmp_path)})["SPARK_HOME"])

    assert home.parent == tmp_path / "orbitmq"
    assert not (home / "python").exists()


@pytest.mark.parametrize("name", ["SPARK_HOME", "PYSPARK_PYTHON"])
def test_a_spark_or_python_of_the_user_is_used_unchanged(name: str, tmp_path: Path) -> None:
    own = {name: "/opt/own", "XDG_CACHE_HOME": str(tmp_path)}

    assert environment_for(own).get("SPARK_HOME") == own.get("SPARK_HOME")


def test_an_unwritable_cache_costs_only_time(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    present = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "file")}
    present = {name: text for name, text in present.items() if "SPARK" not in name}

    assert "SPARK_HOME" not in environment_for(present)


def test_a_folder_of_settings_decides_what_is_logged() -> None:
    assert Path(environment_for({})["LOG4J_CONFIGURATION_FILE"]).is_file()
    assert "LOG4J_CONFIGURATION_FILE" not in environment_for({"SPARK_CONF_DIR": "/etc/spark"})


def test_the_package_has_the_function() -> None:
    assert orbitmq.spark.session is session


def test_the_package_is_light_until_something_of_it_is_used() -> None:
    program = "import sys, orbitmq.spark; print('pyspark' in sys.modules)"

    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout

    assert said.split() == [b"False"]


@pytest.mark.parametrize("statement", ["import orbitmq.spark", "from orbitmq.spark import session"])
def test_without_pyspark_the_error_says_what_to_install(statement: str) -> None:
    # Without the folder of installed packages there is no PySpark, as on a machine without it.
    command = [sys.executable, "-S", "-c", statement]
    sources = str(Path(orbitmq.spark.__file__).parents[2])

    done = subprocess.run(
        command, env={"PYTHONPATH": sources}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "orbitmq.errors.PackageMissingError: orbitmq.spark needs the package pyspark, "
        "which is not installed (pip install 'orbitmq[spark]', "
        "or in a clone: pip install '.[spark]')"
    )


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'spark_session'"):
        _ = orbitmq.spark.spark_session  # type: ignore[attr-defined]  # what is tested
