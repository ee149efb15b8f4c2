"""The documentation page that scripts/generate_docs.py writes from the tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.broker.app import load_settings as load_broker_settings
from orbitmq.nameserver.app import load_settings as load_name_server_settings
from orbitmq.settings import describe, option
from scripts.generate_docs import (
    config_classes,
    configuration_page,
    modules_page,
    spark_option_classes,
    spark_options_page,
    write_or_check,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleConfig:
    """How the sample works."""

    listen_port: int = option(9876, low=0, high=65_535, live=True, doc="Port | socket.")
    folder: Path = option(Path("~/store"), doc="Where files lie.")
    password: str = option("", secret=True, environment=("SAMPLE_PASSWORD",), doc="Password.")
    threads: int = option(1, java="serverWorkerThreads", doc="Threads, for once.")


def test_each_config_class_has_a_section_with_a_row_for_each_option() -> None:
    page = configuration_page([SampleConfig])

    assert "## SampleConfig\n\nHow the sample works.\n" in page
    assert "| `listenPort` | `9876` | 0 to 65535 | yes | Port \\| socket. |" in page
    assert "| `folder` | `~/store` | path | no | Where files lie. |" in page
    assert (
        "| `password` | (empty) | text | no | Password. Also set by `SAMPLE_PASSWORD`. "
        "A secret: hidden wherever settings are shown. |" in page
    )


def test_rocketmq_options_without_effect_and_refused_ones_are_listed_unless_they_are_ours() -> None:
    page = configuration_page([SampleConfig])

    assert (
        "| `serverSelectorThreads` | NettyServerConfig | `3` | "
        "work runs on an event loop, not in thread pools |" in page
    )
    assert "| `aclEnable` | BrokerConfig | `false` | access control is not built |" in page
    assert page.count("`serverWorkerThreads`") == 1


def test_every_option_of_a_server_is_on_the_page() -> None:
    on_the_page = {row.name for row in describe(*config_classes())}

    for load in (load_broker_settings, load_name_server_settings):
        lines = load(environment={}).as_properties_text().splitlines()
        assert {line.partition("=")[0] for line in lines} - on_the_page == set()


def test_a_page_that_was_written_is_current_until_the_table_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "docs" / "configuration.md"
    page = configuration_page([SampleConfig])

    assert write_or_check(page, path, check=True) == 1
    assert write_or_check(page, path, check=False) == 0
    assert write_or_check(page, path, check=True) == 0
    assert write_or_check(configuration_page([]), path, check=True) == 1

    assert f"{path.name} is out of date; run: make docs" in capsys.readouterr().err


def test_the_page_of_spark_options_shows_the_names_that_kafka_has() -> None:
    page = spark_options_page(spark_option_classes())

    assert "| `namesrvAddr` | (empty) | text | `kafka.bootstrap.servers` |" in page
    assert "| `includeBody` | `true` | true or false | none |" in page
    assert page.count("`namesrvAddr`") == 1


def test_the_page_of_modules_has_a_line_for_each_module_under_its_package() -> None:
    page = modules_page()

    package = page.index("**`orbitmq/`** OrbitMQ: a RocketMQ-compatible message queue")
    module = page.index("- `version.py` OrbitMQ's own version, in one place.")
    assert package < module < page.index("**`orbitmq/broker/`**")
