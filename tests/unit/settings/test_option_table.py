"""The check of each value that was set."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from orbitmq.errors import OptionValueError, UnknownOptionError, UnsupportedOptionError
from orbitmq.settings import ServerRole, option
from orbitmq.settings.option_table import Assignment, OptionTable, Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketConfig:
    listen_port: int = option(9876, low=0, high=65_535, doc="Port.")
    idle_ms: int = option(1, java="serverIdle", doc="Idle.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanConfig:
    scan_interval_ms: int = option(10_000, java="scanNotActiveBrokerInterval", doc="Interval.")
    idle_ms: int = option(1, java="scanIdle", doc="Idle.")


TABLE = OptionTable([SocketConfig, ScanConfig], role=ServerRole.NAME_SERVER)


def said(name: str, text: str) -> Assignment:
    return Assignment(name=name, text=text, origin=Origin.FILE, source="file", where="a.conf:3")


def test_an_option_accepts_its_value_and_the_last_one_counts() -> None:
    reading = TABLE.read([said("listenPort", "1"), said("listenPort", "2")])

    assert reading.settings["listenPort"].value == 2
    assert reading.settings["listenPort"].source == "file"
    assert not reading.warnings
    assert not reading.problems


def test_all_problems_are_found_not_only_the_first() -> None:
    reading = TABLE.read(
        [said("listenPort", "abc"), said("listenPrt", "1"), said("aclEnable", "true")]
    )

    assert [type(problem) for problem in reading.problems] == [
        OptionValueError,
        UnknownOptionError,
        UnsupportedOptionError,
    ]


def test_an_option_of_ours_comes_before_the_row_of_rocketmq() -> None:
    reading = TABLE.read([said("scanNotActiveBrokerInterval", "5000")])

    assert reading.settings["scanNotActiveBrokerInterval"].value == 5000
    assert not reading.warnings


def test_options_of_rocketmq_without_effect_cause_a_warning_each() -> None:
    reading = TABLE.read([said("serverWorkerThreads", "8"), said("brokerName", "broker-a")])

    assert reading.warnings == [
        "a.conf:3: serverWorkerThreads has no effect: "
        "work runs on an event loop, not in thread pools",
        "a.conf:3: brokerName is a broker option and has no effect on the name server",
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [("aclEnable", "false"), ("aclEnable", " FALSE "), ("storeType", "default")],
)
def test_the_harmless_value_of_a_refused_option_is_accepted_silently(name: str, text: str) -> None:
    reading = TABLE.read([said(name, text)])

    assert not reading.problems
    assert not reading.warnings


@pytest.mark.parametrize(
    ("name", "text", "harmless"),
    [
        ("aclEnable", "true", "aclEnable=false"),
        ("storeType", "defaultRocksDB", "storeType=default"),
        ("enableControllerInNamesrv", "true", "enableControllerInNamesrv=false"),
    ],
)
def test_any_other_value_of_a_refused_option_is_a_problem(
    name: str, text: str, harmless: str
) -> None:
    (problem,) = TABLE.read([said(name, text)]).problems

    assert isinstance(problem, UnsupportedOptionError)
    assert f"a.conf:3: {name}={text} is not supported" in str(problem)
    assert harmless in problem.hint


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("listenPrt", "listenPort"),
        ("LISTENPORT", "listenPort"),
        ("listen_port", "listenPort"),
        ("scanNotActiveBrokersInterval", "scanNotActiveBrokerInterval"),
        ("brokerNames", "brokerName"),
    ],
)
def test_an_unknown_name_is_a_problem_that_names_the_nearest_one(written: str, meant: str) -> None:
    (problem,) = TABLE.read([said(written, "1")]).problems

    assert isinstance(problem, UnknownOptionError)
    assert str(problem) == f"a.conf:3: unknown option {written!r} (did you mean {meant}?)"


def test_an_unknown_name_without_a_near_match_points_to_the_page() -> None:
    (problem,) = TABLE.read([said("zzz", "1")]).problems

    assert problem.hint == "docs/configuration.md lists them all"


def test_a_field_name_stands_for_its_option_unless_two_classes_have_it() -> None:
    assert TABLE.name_of("listen_port") == "listenPort"
    assert TABLE.name_of("listenPort") == "listenPort"
    assert TABLE.name_of("idle_ms") == "idle_ms"
    assert TABLE.name_of("other") == "other"


def test_two_classes_with_the_same_option_are_a_bug() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class OtherConfig:
        port: int = option(1, java="listenPort", doc="Port.")

    with pytest.raises(TypeError, match="two config classes declare the option listenPort"):
        OptionTable([SocketConfig, OtherConfig], role=None)
