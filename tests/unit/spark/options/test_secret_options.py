"""Secrets in a file, and none in a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import PropertiesError, SettingsError
from orbitmq.settings import describe
from orbitmq.spark.options.read_options import ReadOptions
from orbitmq.spark.options.secret_options import check_table_has_no_secrets, with_secrets
from orbitmq.spark.options.write_options import WriteOptions
from orbitmq.spark.source import RocketMQSource

GIVEN = {"namesrvAddr": "127.0.0.1:9876", "topic": "orders"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets"
    path.write_text("# of the shop\naccessKey = shop\nsecretKey=hush\n")
    return path


def test_options_of_a_file_come_beside_those_given(file: Path) -> None:
    options = WriteOptions.from_spark({**GIVEN, "secretsPath": str(file)})

    assert (options.access_key, options.secret_key) == ("shop", "hush")
    assert options.topic == "orders"


def test_what_is_given_wins(file: Path) -> None:
    found = with_secrets({"AccessKey": "me"}, str(file), describe(WriteOptions))

    assert found == {"accesskey": "me", "secretkey": "hush"}


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"secretsPath cannot be read: .*nothing.*machine of the driver"
    ):
        WriteOptions.from_spark({**GIVEN, "secretsPath": str(tmp_path / "nothing")})


@pytest.mark.parametrize(
    "line",
    [
        "hush",
        "secretKy=hush",
        "hush=secretKey",
        "secretKey=hush\\u12",
        "secretKey=hush\\uD83D",
        "hush\\u12",
        # Options that are checked by their values, which errors show.
        "tls=hush",
        "namesrvAddr=hush",
        "topic=hush hush",
    ],
)
def test_a_refused_line_is_named_by_its_number_only(file: Path, line: str) -> None:
    file.write_text(f"accessKey=shop\n{line}\n")

    with pytest.raises(PropertiesError, match="secrets:2: ") as refused:
        WriteOptions.from_spark({**GIVEN, "secretsPath": str(file)})
    assert "hush" not in str(refused.value)


def test_an_impossible_path_is_an_error() -> None:
    with pytest.raises(SettingsError, match=r"secretsPath cannot be read: .*null byte"):
        with_secrets({}, "secrets\0", describe(WriteOptions))


def test_the_error_lists_what_a_file_of_secrets_may_set(file: Path) -> None:
    file.write_text("hush")

    with pytest.raises(
        PropertiesError, match="allowed are accessKey, secretKey, securityToken, tlsKeyPassword"
    ):
        WriteOptions.from_spark({**GIVEN, "secretsPath": str(file)})


def test_an_error_about_incomplete_keys_does_not_show_them(file: Path) -> None:
    file.write_text("secretKey=hush")

    with pytest.raises(SettingsError, match="secret_key is set and access_key is not") as refused:
        WriteOptions.from_spark({**GIVEN, "secretsPath": str(file)})
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("name", ["secretKey", "securityToken", "tlsKeyPassword"])
def test_a_table_takes_no_secret(name: str) -> None:
    with pytest.raises(SettingsError, match=rf"{name} cannot be an option of a table.*secretsPath"):
        check_table_has_no_secrets({**GIVEN, name.lower(): "hush"}, ReadOptions, WriteOptions)


def test_a_table_takes_everything_else() -> None:
    check_table_has_no_secrets({**GIVEN, "accesskey": "shop", "secretspath": "x"}, ReadOptions)


def test_a_new_table_notes_the_path_of_its_secrets(file: Path) -> None:
    given = {"namesrvaddr": "127.0.0.1:9876", "subscribe": "orders", "secretspath": str(file)}
    making = {"provider": "rocketmq", **{f"option.{name}": text for name, text in given.items()}}

    schema = RocketMQSource(making).schema()

    assert str(file) in schema.json()
    assert "hush" not in schema.json()


def test_a_table_with_a_secret_is_not_created() -> None:
    making = {"provider": "rocketmq", "option.subscribe": "orders", "option.secretkey": "hush"}

    with pytest.raises(SettingsError, match="secretKey cannot be an option of a table") as refused:
        RocketMQSource(making).schema()
    assert "hush" not in str(refused.value)
