"""Which filter class a group has named."""

from __future__ import annotations

import pytest

from orbitmq.errors import FilterMissingError
from orbitmq.filterserver.filter_classes import CLASSES_MAX, FilterClasses
from orbitmq.model.subscriptions import Subscription
from orbitmq.protocol.headers import Long
from orbitmq.protocol.requests.filter_servers import RegisterFilterClass
from orbitmq.protocol.requests.pulling import PullFlag, PullMessages


def named(group: str, name: str = "shop.Paid") -> RegisterFilterClass:
    return RegisterFilterClass(consumer_group=group, topic="T", class_name=name, class_crc=1)


def pull(
    group: str, *, flag: PullFlag = PullFlag.CLASS_FILTER, text: str | None = None
) -> PullMessages:
    return PullMessages(
        consumer_group=group,
        topic="T",
        queue_id=0,
        queue_offset=Long(0),
        messages_max=32,
        system_flag=int(flag),
        commit_offset=Long(0),
        suspend_timeout_ms=Long(0),
        expression=text,
        subscription_version=Long(0),
    )


async def nobody(_group: str, _topic: str) -> Subscription | None:
    return None


async def test_classes_of_more_groups_than_are_remembered_replace_the_oldest() -> None:
    classes = FilterClasses(nobody)
    classes.register(named("first"))
    for number in range(CLASSES_MAX):
        classes.register(named(f"g{number}"))

    assert len(classes) == CLASSES_MAX
    assert await classes.of(pull("g0")) == "shop.Paid"
    with pytest.raises(FilterMissingError, match="group 'first' has named no filter class"):
        await classes.of(pull("first"))


async def test_a_class_that_a_group_names_again_replaces_its_old_one() -> None:
    classes = FilterClasses(nobody)
    classes.register(named("g"))
    classes.register(named("g", "shop.Open"))

    assert await classes.of(pull("g")) == "shop.Open"


async def test_the_text_of_a_pull_is_a_class_only_if_it_says_so() -> None:
    classes = FilterClasses(nobody)
    classes.register(named("g"))

    assert await classes.of(pull("g", text="shop.Open")) == "shop.Open"
    assert await classes.of(pull("g", flag=PullFlag.SUBSCRIPTION, text="TagA")) == "shop.Paid"
