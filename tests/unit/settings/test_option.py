"""Rows of the table of options, and how config classes declare them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.errors import OptionValueError
from orbitmq.settings import check_limits, describe, option
from orbitmq.settings.option import HIDDEN, Option, camel_case, upper_snake


class FlushMode(enum.StrEnum):
    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleConfig:
    """One option of each shape."""

    listen_port: int = option(9876, low=0, high=65_535, doc="Port to listen on.")
    flush_interval_ms: int = option(
        500, low=1, java="flushIntervalCommitLog", live=True, doc="Pause between flushes."
    )
    ratio: float = option(0.75, high=1, doc="How full.")
    enabled: bool = option(True, doc="Whether it runs.")
    cluster: str = option("", doc="Name of the cluster.")
    level: str = option("low", choices=("low", "high"), doc="How much.")
    flush_mode: FlushMode = option(FlushMode.SYNC, java="flushDiskType", doc="When to flush.")
    folder: Path = option(Path("~/store"), doc="Where files lie.")
    key: Path | None = option(None, doc="The key, if any.")
    addresses: tuple[str, ...] = option((), environment=("NAMESRV_ADDR",), doc="Name servers.")
    password: str = option("", secret=True, doc="Password.")
    host: str = option("machine-7", default_shown="the host's name", doc="Name of the host.")


ROWS = {row.field: row for row in describe(SampleConfig)}


def test_a_config_class_is_built_from_its_defaults() -> None:
    config = SampleConfig()

    assert config.listen_port == 9876
    assert config.flush_mode is FlushMode.SYNC


def test_rows_have_the_order_and_the_facts_of_their_declarations() -> None:
    rows = describe(SampleConfig)

    assert [row.field for row in rows][:3] == ["listen_port", "flush_interval_ms", "ratio"]
    row = ROWS["flush_interval_ms"]
    assert (row.name, row.default_text, row.limits, row.live, row.doc) == (
        "flushIntervalCommitLog",
        "500",
        "1 or more",
        True,
        "Pause between flushes.",
    )
    assert ROWS["listen_port"].name == "listenPort"
    assert ROWS["addresses"].environment == ("NAMESRV_ADDR",)
    assert all(row.owner is SampleConfig for row in rows)


@pytest.mark.parametrize(
    ("field", "limits", "takes"),
    [
        ("listen_port", "0 to 65535", "a whole number from 0 to 65535"),
        ("flush_interval_ms", "1 or more", "a whole number, 1 or more"),
        ("ratio", "1 or less", "a number, 1 or less"),
        ("enabled", "true or false", "true or false"),
        ("cluster", "text", "any text"),
        ("level", "low, high", "one of low, high"),
        ("flush_mode", "SYNC_FLUSH, ASYNC_FLUSH", "one of SYNC_FLUSH, ASYNC_FLUSH"),
        ("folder", "path", "a path"),
        ("key", "path, or nothing", "a path, or nothing"),
        ("addresses", "texts separated by ';'", "texts separated by ';'"),
    ],
)
def test_a_row_describes_the_values_it_accepts(field: str, limits: str, takes: str) -> None:
    assert ROWS[field].limits == limits
    assert ROWS[field].takes == takes


def test_the_shown_default_is_the_same_on_every_machine() -> None:
    assert ROWS["folder"].default_text == "~/store"
    assert ROWS["host"].default_text == "the host's name"


def test_a_path_default_follows_the_home_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert SampleConfig().folder == tmp_path / "store"


@pytest.mark.parametrize(
    ("field", "text", "hint"),
    [
        ("listen_port", "abc", "a whole number from 0 to 65535"),
        ("listen_port", "70000", "a whole number from 0 to 65535"),
        ("listen_port", "-1", "a whole number from 0 to 65535"),
        ("ratio", "1.5", "a number, 1 or less"),
        ("enabled", "maybe", "true or false"),
        ("level", "middle", "one of low, high"),
        ("flush_mode", "LAZY", "one of SYNC_FLUSH, ASYNC_FLUSH"),
    ],
)
def test_a_bad_value_is_refused_with_place_value_and_limits(
    field: str, text: str, hint: str
) -> None:
    with pytest.raises(OptionValueError) as caught:
        ROWS[field].parse(text, where="a.conf:3")

    assert str(caught.value).startswith(f"a.conf:3: {ROWS[field].name} cannot be {text!r}")
    assert hint in caught.value.hint


def test_blanks_around_a_value_are_ignored() -> None:
    assert ROWS["listen_port"].parse(" 1234 ", where="here") == 1234
    assert ROWS["cluster"].parse("east ", where="here") == "east"


def test_a_secret_is_hidden_wherever_it_is_shown() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class PinConfig:
        pin: int = option(1, low=1, high=9, secret=True, doc="Pin.")

    (pin,) = describe(PinConfig)

    with pytest.raises(OptionValueError) as caught:
        pin.parse("4711", where="here")

    assert "4711" not in str(caught.value)
    assert pin.show(7) == HIDDEN
    assert ROWS["password"].show("") == ""


def test_limits_apply_to_configs_created_in_code() -> None:
    check_limits(SampleConfig(listen_port=1))

    with pytest.raises(OptionValueError, match="SampleConfig: listenPort cannot be '70000'"):
        check_limits(SampleConfig(listen_port=70_000))


def test_a_default_outside_its_own_limits_is_a_bug() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class WrongConfig:
        port: int = option(0, low=1, doc="Port.")

    with pytest.raises(OptionValueError, match=r"default of WrongConfig\.port"):
        describe(WrongConfig)


def test_a_field_that_is_not_an_option_is_a_bug() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class WrongConfig:
        port: int = 1

    with pytest.raises(TypeError, match=r"WrongConfig\.port is not made by option"):
        describe(WrongConfig)


def test_an_option_without_a_doc_is_a_bug() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class WrongConfig:
        port: int = option(1, doc=" ")

    with pytest.raises(TypeError, match=r"WrongConfig\.port has no doc"):
        describe(WrongConfig)


@pytest.mark.parametrize(
    ("field", "name"), [("listen_port", "listenPort"), ("port", "port"), ("a_b_c", "aBC")]
)
def test_a_field_name_becomes_a_java_name(field: str, name: str) -> None:
    assert camel_case(field) == name


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("listenPort", "LISTEN_PORT"),
        ("brokerIP1", "BROKER_IP1"),
        ("useTLS", "USE_TLS"),
        ("checkCRCOnRecover", "CHECK_CRC_ON_RECOVER"),
        ("tls.server.certPath", "TLS_SERVER_CERT_PATH"),
    ],
)
def test_an_option_name_becomes_upper_snake_case(name: str, variable: str) -> None:
    assert upper_snake(name) == variable


def test_a_row_cannot_be_changed() -> None:
    row: Option = ROWS["listen_port"]

    with pytest.raises(AttributeError):
        row.low = 1  # type: ignore[misc]  # that it is refused is the point
