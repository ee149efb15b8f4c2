from __future__ import annotations

import pytest

from orbitmq.errors import OrbitError, SettingsError, UnknownOptionError
from orbitmq.spark.options.store_options import StoreOptions


def made(**given: str) -> StoreOptions:
    return StoreOptions.from_spark({"path": "/data/store", **given})


def test_defaults_read_every_topic_with_text_properties() -> None:
    options = made()

    assert options.path_patterns == ("/data/store",)
    assert (options.topics, options.assigned_queues, options.tag_filter.tags) == ((), (), None)
    assert options.properties == "string"
    assert options.include_body
    assert options.fail_on_data_loss
    assert not options.check_crc
    assert not options.include_system_topics


def test_options_are_read_whatever_their_letter_case() -> None:
    options = made(
        SUBSCRIBE="orders, payments",
        checkcrc="true",
        brokername="a,b",
        minpartitions="7",
        startingTimestamp="12",
        tags="A || B",
    )

    assert options.topics == ("orders", "payments")
    assert options.check_crc
    assert options.broker_names == ("a", "b")
    assert options.min_partitions == 7
    assert options.starting_timestamp == 12
    assert options.tag_filter.normalised == "A || B"


def test_directories_are_listed_by_commas_or_as_json() -> None:
    assert made(path="/a, /b/*").path_patterns == ("/a", "/b/*")
    assert made(path="", paths='["/a,b", "/c"]').path_patterns == ("/a,b", "/c")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": ""}, "no store directory is given"),
        ({"paths": "/a"}, "paths cannot be '/a'"),
        ({"paths": "[1]"}, "paths cannot be"),
        ({"paths": "[" * 200_000}, "paths cannot be"),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OrbitError, match=message):
        made(**given)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("topic", "subscribe"), ("checkCrcs", "checkCRC"), ("startTimestamp", "startingTimestamp")],
)
def test_an_unknown_option_leads_to_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(UnknownOptionError) as caught:
        made(**{wrong: "1"})

    assert caught.value.nearest == right
    assert isinstance(caught.value, SettingsError)
