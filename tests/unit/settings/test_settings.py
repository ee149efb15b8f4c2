"""All sources together, live update, printing and saving."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.errors import (
    FixedOptionError,
    ForbiddenOptionError,
    OptionValueError,
    PropertiesError,
    SettingsError,
    SettingsProblemsError,
    UnknownOptionError,
    UnsupportedOptionError,
)
from orbitmq.settings import Changed, OptionChange, ServerRole, Settings, option


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketConfig:
    listen_port: int = option(9876, low=0, high=65_535, doc="Port.")
    bind_address: str = option("0.0.0.0", doc="Address.")
    password: str = option("", live=True, secret=True, doc="Password.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanConfig:
    scan_interval_ms: int = option(
        10_000, low=1, java="scanNotActiveBrokerInterval", live=True, doc="Interval."
    )
    low: int = option(1, live=True, doc="Low mark.")
    high: int = option(2, live=True, doc="High mark.")

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise SettingsError(f"low={self.low} is above high={self.high}", hint="swap them")


def load(
    *,
    file: Path | None = None,
    environment: dict[str, str] | None = None,
    flags: dict[str, str] | None = None,
) -> Settings:
    return Settings.load(
        SocketConfig,
        ScanConfig,
        file=file,
        environment=environment,
        flags=flags,
        role=ServerRole.NAME_SERVER,
    )


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "namesrv.conf"


def test_without_sources_everything_has_its_default() -> None:
    settings = load()

    assert settings.of(SocketConfig) == SocketConfig()
    assert settings.of(ScanConfig) == ScanConfig()
    assert settings.source_of("listenPort") == "default"
    assert settings.warnings == []


def test_one_file_sets_several_config_classes(conf: Path) -> None:
    conf.write_text("listenPort=1234\nscanNotActiveBrokerInterval = 5000\n")

    settings = load(file=conf)

    assert settings.of(SocketConfig).listen_port == 1234
    assert settings.of(ScanConfig).scan_interval_ms == 5000


@pytest.mark.parametrize("from_file", ["1", None])
@pytest.mark.parametrize("from_environment", ["2", None])
@pytest.mark.parametrize("from_flag", ["3", None])
def test_flags_come_before_environment_before_file_before_defaults(
    conf: Path, from_file: str | None, from_environment: str | None, from_flag: str | None
) -> None:
    conf.write_text("# head\n" + (f"listenPort={from_file}\n" if from_file else ""))
    environment = {"ORBITMQ_LISTEN_PORT": from_environment} if from_environment else {}
    flags = {"listenPort": from_flag} if from_flag else {}

    settings = load(file=conf, environment=environment, flags=flags)

    expected = [
        (from_flag, "flag"),
        (from_environment, "environment ORBITMQ_LISTEN_PORT"),
        (from_file, "namesrv.conf line 2"),
        ("9876", "default"),
    ]
    text, source = next((text, source) for text, source in expected if text)
    assert settings.of(SocketConfig).listen_port == int(text)
    assert settings.source_of("listenPort") == source


def test_a_flag_may_use_the_name_of_the_field() -> None:
    settings = load(flags={"scan_interval_ms": "7"})

    assert settings.of(ScanConfig).scan_interval_ms == 7
    assert settings.source_of("scan_interval_ms") == "flag"


def test_a_config_instead_of_its_class_has_the_defaults_of_the_role() -> None:
    settings = Settings.load(SocketConfig(listen_port=10911), ScanConfig, flags={"low": "0"})

    assert settings.of(SocketConfig).listen_port == 10911
    assert settings.source_of("listenPort") == "default"


def test_defaults_of_a_role_are_checked_against_the_limits() -> None:
    with pytest.raises(OptionValueError, match="listenPort cannot be '70000'"):
        Settings.load(SocketConfig(listen_port=70_000))


def test_all_problems_are_reported_together_with_file_line_and_value(conf: Path) -> None:
    conf.write_text(
        "listenPort=abc\nlistenPrt=1\naclEnable=true\nbad=\\u12\nscanNotActiveBrokerInterval=0\n"
    )

    with pytest.raises(SettingsProblemsError) as caught:
        load(file=conf, flags={"bindAddr": "::"})

    assert len(caught.value.problems) == 6
    text = str(caught.value)
    assert "6 problems in the settings" in text
    assert f"{conf}:1: listenPort cannot be 'abc' (it takes a whole number from 0 to 65535)" in text
    assert f"{conf}:2: unknown option 'listenPrt' (did you mean listenPort?)" in text
    assert f"{conf}:3: aclEnable=true is not supported" in text
    assert f"{conf}:4: \\u without four hexadecimal digits" in text
    assert f"{conf}:5: scanNotActiveBrokerInterval cannot be '0'" in text
    assert "flag bindAddr: unknown option 'bindAddr' (did you mean bindAddress?)" in text


def test_a_single_problem_is_raised_as_itself() -> None:
    with pytest.raises(OptionValueError, match="environment ORBITMQ_LISTEN_PORT: listenPort"):
        load(environment={"ORBITMQ_LISTEN_PORT": "70000"})


def test_a_bad_value_is_a_problem_even_if_another_source_overrides_it(conf: Path) -> None:
    conf.write_text("listenPort=abc\n")

    with pytest.raises(OptionValueError, match="abc"):
        load(file=conf, flags={"listenPort": "1"})


@pytest.mark.parametrize("source", ["file", "environment", "flags"])
def test_an_option_that_cannot_be_honoured_fails_the_start_from_any_source(
    conf: Path, source: str
) -> None:
    conf.write_text("aclEnable=true\n" if source == "file" else "")
    environment = {"ORBITMQ_ACL_ENABLE": "true"} if source == "environment" else {}
    flags = {"aclEnable": "true"} if source == "flags" else {}

    with pytest.raises(UnsupportedOptionError, match="aclEnable=true is not supported"):
        load(file=conf, environment=environment, flags=flags)


def test_everything_worth_knowing_is_in_the_warnings(conf: Path) -> None:
    conf.write_text("listenPort=1\nserverWorkerThreads=8\nbrokerName=a\nlistenPort=2\n")

    settings = load(file=conf, environment={"ORBITMQ_LISTEN_PROT": "3"})

    assert settings.of(SocketConfig).listen_port == 2
    assert settings.warnings == [
        f"{conf}:4: listenPort is set again; the last value counts",
        f"{conf}:2: serverWorkerThreads has no effect: "
        "work runs on an event loop, not in thread pools",
        f"{conf}:3: brokerName is a broker option and has no effect on the name server",
        "environment ORBITMQ_LISTEN_PROT sets no known option; did you mean ORBITMQ_LISTEN_PORT?",
    ]


def test_a_file_that_cannot_be_read_is_an_error_with_its_path(conf: Path) -> None:
    with pytest.raises(PropertiesError) as caught:
        load(file=conf)

    assert f"{conf}: cannot be read: No such file" in str(caught.value)
    assert "check the path" in caught.value.hint


def test_relations_between_options_are_checked_by_their_class() -> None:
    with pytest.raises(SettingsError, match="low=5 is above high=2"):
        load(flags={"low": "5"})


def test_the_source_of_an_unknown_option_is_an_error() -> None:
    with pytest.raises(UnknownOptionError, match="did you mean listenPort"):
        load().source_of("listenPrt")


def test_printing_lists_all_options_sorted_with_secrets_hidden() -> None:
    settings = load(flags={"password": "swordfish"})

    assert settings.as_properties_text() == (
        "bindAddress=0.0.0.0\n"
        "high=2\n"
        "listenPort=9876\n"
        "low=1\n"
        "password=******\n"
        "scanNotActiveBrokerInterval=10000\n"
    )


@pytest.mark.parametrize(
    "changes",
    [
        "scanNotActiveBrokerInterval=5000\n",
        b"scanNotActiveBrokerInterval=5000",
        {"scanNotActiveBrokerInterval": "5000"},
    ],
)
def test_a_live_option_changes_and_listeners_are_notified(
    changes: str | bytes | dict[str, str],
) -> None:
    settings = load()
    socket_config = settings.of(SocketConfig)
    notified: list[tuple[Changed, int]] = []
    settings.on_change(
        lambda changed: notified.append((changed, settings.of(ScanConfig).scan_interval_ms))
    )

    changed = settings.update(changes)

    change = OptionChange(name="scanNotActiveBrokerInterval", old="10000", new="5000")
    assert changed == Changed(options=(change,), warnings=())
    assert changed.names == {"scanNotActiveBrokerInterval"}
    assert notified == [(changed, 5000)]
    assert settings.of(SocketConfig) is socket_config
    assert settings.source_of("scanNotActiveBrokerInterval").startswith("update")


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("listenPort=1", FixedOptionError, "'9876' to '1': it takes effect only at start"),
        ("listenPrt=1", UnknownOptionError, "did you mean listenPort"),
        ("low=abc", OptionValueError, "low cannot be 'abc'"),
        ("low=3", SettingsError, "low=3 is above high=2"),
        ("aclEnable=true", UnsupportedOptionError, "aclEnable=false"),
        ("low=\\u1", PropertiesError, "four hexadecimal digits"),
    ],
)
def test_an_update_with_any_problem_changes_nothing(
    line: str, error: type[SettingsError], words: str
) -> None:
    settings = load()
    before = settings.as_properties_text()
    notified: list[Changed] = []
    settings.on_change(notified.append)

    with pytest.raises(error) as caught:
        settings.update(f"scanNotActiveBrokerInterval=5000\n{line}\n")

    assert words in str(caught.value)
    assert settings.as_properties_text() == before
    assert settings.source_of("scanNotActiveBrokerInterval") == "default"
    assert notified == []


def test_an_update_names_all_its_problems_and_what_to_do() -> None:
    with pytest.raises(SettingsProblemsError) as caught:
        load().update("listenPort=1\nlow=abc\n")

    assert len(caught.value.problems) == 2
    assert "set it in the file and restart" in str(caught.value)
    assert "update:2: low cannot be 'abc'" in str(caught.value)


def test_an_update_that_names_an_option_on_the_black_list_is_refused() -> None:
    settings = load()

    with pytest.raises(ForbiddenOptionError) as caught:
        settings.update("low=1\nhigh=9\nnonsense=1", forbidden=("low", "configBlackList"))

    assert caught.value.names == ["low"]
    assert settings.of(ScanConfig).high == 2


def test_the_current_value_of_a_fixed_option_is_accepted() -> None:
    settings = load()
    notified: list[Changed] = []
    settings.on_change(notified.append)

    changed = settings.update("listenPort=9876\nlow=1\n")

    assert changed.options == ()
    assert notified == []


def test_printed_settings_may_be_sent_back_with_one_line_changed() -> None:
    settings = load(flags={"password": "swordfish"})
    text = settings.as_properties_text().replace("high=2", "high=9")

    changed = settings.update(text)

    assert changed.names == {"high"}
    assert settings.of(SocketConfig).password == "swordfish"


def test_an_update_warns_of_options_that_will_not_last_or_have_no_effect() -> None:
    settings = load(flags={"high": "5"}, environment={"ORBITMQ_LOW": "2"})

    changed = settings.update({"high": "6", "low": "3", "serverWorkerThreads": "4"})
    again = settings.update({"high": "7"})

    assert changed.warnings == (
        "update: serverWorkerThreads has no effect: "
        "work runs on an event loop, not in thread pools",
        "high is set by flag at start, which takes precedence over the file",
        "low is set by environment ORBITMQ_LOW at start, which takes precedence over the file",
    )
    assert again.warnings == ("high is set by flag at start, which takes precedence over the file",)


def test_secrets_are_hidden_from_listeners() -> None:
    settings = load()

    changed = settings.update({"password": "swordfish"})

    assert changed.options == (OptionChange(name="password", old="", new="******"),)
    assert settings.of(SocketConfig).password == "swordfish"


def test_a_listener_that_fails_does_not_affect_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = load()
    notified: list[Changed] = []

    def fail(changed: Changed) -> None:
        raise RuntimeError(f"cannot follow {changed}")

    settings.on_change(fail)
    settings.on_change(notified.append)

    with caplog.at_level(logging.ERROR):
        changed = settings.update({"high": "3"})

    assert notified == [changed]
    assert "settings listener failed changed=['high']" in caplog.text


def test_saving_replaces_changed_lines_and_keeps_all_others(conf: Path) -> None:
    text = "# our name server\nhigh : 4\nbrokerName=a\n\n! end\n"
    conf.write_text(text)
    settings = load(file=conf)
    settings.update({"high": "5", "low": "2"})

    settings.save(conf)

    assert conf.read_text() == "# our name server\nhigh=5\nbrokerName=a\n\n! end\nlow=2\n"
    assert conf.with_name("namesrv.conf.bak").read_text() == text
    assert load(file=conf).of(ScanConfig) == settings.of(ScanConfig)


def test_saving_writes_secrets_as_they_are_into_a_new_file(conf: Path) -> None:
    settings = load()
    settings.update({"password": "swördfish"})

    settings.save(conf)

    assert conf.read_text() == "password=sw\\u00F6rdfish\n"
    assert load(file=conf).of(SocketConfig).password == "swördfish"


def test_saving_keeps_the_encoding_of_the_file(conf: Path) -> None:
    conf.write_bytes("# Größe\nhigh=4\n".encode("latin-1"))
    settings = load(file=conf)
    settings.update({"high": "5"})

    settings.save(conf)

    assert conf.read_bytes() == "# Größe\nhigh=5\n".encode("latin-1")


def test_saving_without_a_change_leaves_the_file_alone(conf: Path) -> None:
    conf.write_text("high=4\n")
    settings = load(file=conf)

    settings.save(conf)

    assert list(conf.parent.iterdir()) == [conf]


def test_a_file_broken_since_the_start_is_not_overwritten(conf: Path) -> None:
    settings = load()
    settings.update({"high": "5"})
    conf.write_text("bad=\\u12\n")

    with pytest.raises(PropertiesError, match="four hexadecimal digits"):
        settings.save(conf)

    assert conf.read_text() == "bad=\\u12\n"


def test_a_file_that_cannot_be_written_is_an_error_that_explains_the_risk(conf: Path) -> None:
    conf.with_name("namesrv.conf.bak").mkdir()
    conf.write_text("high=4\n")
    settings = load(file=conf)
    settings.update({"high": "5"})

    with pytest.raises(PropertiesError) as caught:
        settings.save(conf)

    assert f"{conf}: cannot be written" in str(caught.value)
    assert "a restart would lose them" in caught.value.hint
    assert conf.read_text() == "high=4\n"


def test_a_file_named_like_another_source_is_still_a_file(tmp_path: Path) -> None:
    conf = tmp_path / "update"
    conf.write_text("high=4\n")
    settings = load(file=conf)

    settings.save(conf)
    changed = settings.update({"high": "5"})

    assert list(tmp_path.iterdir()) == [conf]
    assert changed.warnings == ()
