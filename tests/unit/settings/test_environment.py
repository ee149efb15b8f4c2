"""Options from environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from orbitmq.settings import ServerRole, option
from orbitmq.settings.environment import read_environment
from orbitmq.settings.option_table import OptionTable


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleConfig:
    listen_port: int = option(9876, doc="Port.")
    addresses: tuple[str, ...] = option(
        (), java="namesrvAddr", environment=("NAMESRV_ADDR",), doc="Name servers."
    )


def read(
    environment: Mapping[str, str],
    *,
    role: ServerRole | None = ServerRole.NAME_SERVER,
    leave_alone: tuple[str, ...] = (),
) -> tuple[list[tuple[str, str, str]], list[str]]:
    table = OptionTable([SampleConfig], role=role)
    assignments, warnings = read_environment(environment, table, leave_alone=leave_alone)
    return [(found.name, found.text, found.source) for found in assignments], warnings


@pytest.mark.parametrize("variable", ["ORBITMQ_listenPort", "ORBITMQ_LISTEN_PORT"])
def test_an_option_is_set_by_its_name_in_both_spellings(variable: str) -> None:
    found, warnings = read({variable: "1", "PATH": "/bin"})

    assert found == [("listenPort", "1", f"environment {variable}")]
    assert warnings == []


def test_the_spelling_of_the_file_beats_upper_snake_and_both_beat_declared_variables() -> None:
    environment = {
        "NAMESRV_ADDR": "c:1",
        "ORBITMQ_NAMESRV_ADDR": "b:1",
        "ORBITMQ_namesrvAddr": "a:1",
    }

    strongest = []
    for variable in ("ORBITMQ_namesrvAddr", "ORBITMQ_NAMESRV_ADDR", "NAMESRV_ADDR"):
        strongest.append(read(environment)[0])
        del environment[variable]

    assert [found[0][1] for found in strongest] == ["a:1", "b:1", "c:1"]
    assert read(environment) == ([], [])


def test_an_empty_variable_counts_as_unset() -> None:
    found, warnings = read({"ORBITMQ_listenPort": "", "ORBITMQ_LISTEN_PORT": "2", "ORBITMQ_X": ""})

    assert [text for _, text, _ in found] == ["2"]
    assert warnings == []


def test_an_unknown_variable_causes_a_warning_that_names_the_nearest() -> None:
    _, warnings = read({"ORBITMQ_LISTEN_PROT": "1", "ORBITMQ_ZZZ": "1"})

    assert warnings == [
        "environment ORBITMQ_LISTEN_PROT sets no known option; did you mean ORBITMQ_LISTEN_PORT?",
        "environment ORBITMQ_ZZZ sets no known option",
    ]


def test_variables_and_options_of_others_are_ignored() -> None:
    found, warnings = read(
        {"ORBITMQ_NO_GO": "1", "ORBITMQ_SPARK_ROWS_MAX": "5", "ORBITMQ_sparkRowsMin": "5"},
        leave_alone=("ORBITMQ_NO_GO", "sparkRowsMax", "sparkRowsMin"),
    )

    assert (found, warnings) == ([], [])


def test_options_of_another_role_are_ignored() -> None:
    assert read({"ORBITMQ_BROKER_NAME": "a", "ORBITMQ_brokerId": "0"}) == ([], [])
    assert read({"ORBITMQ_BROKER_NAME": "a"}, role=None) == ([], [])


def test_rocketmq_options_of_this_role_and_refused_ones_are_passed_on() -> None:
    found, warnings = read({"ORBITMQ_SERVER_WORKER_THREADS": "8", "ORBITMQ_aclEnable": "true"})

    assert found == [
        ("serverWorkerThreads", "8", "environment ORBITMQ_SERVER_WORKER_THREADS"),
        ("aclEnable", "true", "environment ORBITMQ_aclEnable"),
    ]
    assert warnings == []
