"""Names of topics and groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orbitmq.errors import NameRuleError
from orbitmq.model import names


@pytest.mark.parametrize("name", ["T", "a-b_C|9%", "NS%orders", "%RETRY%g", "x" * 127])
def test_names_that_follow_the_rule_are_accepted(name: str) -> None:
    names.check_topic(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "the name of the topic is blank"),
        ("  ", "is blank"),
        ("a b", r"topic name 'a b' contains ' ' \(letters, digits, %, |, _ and - are allowed\)"),
        ("order.s", "contains '.'"),
        ("\u4e3b\u9898", "contains '\u4e3b'"),
        ("topic\n", r"contains '\\n'"),
        ("x" * 128, r"has 128 characters \(at most 127 are allowed\)"),
        ("%DLQ%" + "x" * 251, r"has 256 characters \(at most 255"),
    ],
)
def test_other_names_are_refused_with_the_rule(name: str, expected: str) -> None:
    with pytest.raises(NameRuleError, match=expected):
        names.check_topic(name)


def test_a_topic_of_a_group_may_be_longer() -> None:
    names.check_topic("%RETRY%" + "x" * 248)


def test_the_retry_topic_of_the_longest_group_fits_into_a_record() -> None:
    group = "g" * names.GROUP_LENGTH_MAX

    names.check_group(group)

    assert len(names.retry_topic(group)) == names.TOPIC_LENGTH_MAX
    with pytest.raises(NameRuleError, match=r"group name .* has 121 characters"):
        names.check_group(group + "g")


def test_topics_of_a_group_are_recognised_by_their_prefix() -> None:
    assert names.retry_topic("g") == "%RETRY%g"
    assert names.dead_letter_topic("g") == "%DLQ%g"
    assert names.is_retry_topic("%RETRY%g")
    assert not names.is_retry_topic("%DLQ%g")
    assert names.is_group_topic("%DLQ%g")
    assert not names.is_group_topic("RETRY")


def test_system_topics_and_groups_are_known() -> None:
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic("rmq_sys_wheel_timer")
    assert not names.is_system_topic("orders")
    assert names.is_system_group("CID_RMQ_SYS_TRANS")
    assert names.is_system_group("CID_RMQ_SYS_of_a_later_release")
    assert names.is_system_group("TOOLS_CONSUMER")
    assert not names.is_system_group("g")
    assert names.is_broker_only_group("CID_RMQ_SYS_TRANS")
    assert not names.is_broker_only_group("TOOLS_CONSUMER")


@pytest.mark.parametrize("check", [names.check_topic, names.check_group])
def test_a_name_of_another_type_is_refused(check: Callable[[str], None]) -> None:
    with pytest.raises(NameRuleError, match=r"cannot be of type int \(it takes a str\)"):
        check(5)  # type: ignore[arg-type]  # what the test is about
