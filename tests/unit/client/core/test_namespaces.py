"""Namespaces: which names are wrapped and unwrapped, and which stay as they are."""

from __future__ import annotations

import pytest

from orbitmq.client.core.namespaces import unwrap, wrap


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("orders", "tenant%orders"),
        ("%RETRY%billing", "%RETRY%tenant%billing"),
        ("%DLQ%billing", "%DLQ%tenant%billing"),
        ("other%orders", "tenant%other%orders"),
    ],
)
def test_a_name_is_wrapped_once_and_unwrapped(name: str, wrapped: str) -> None:
    assert wrap("tenant", name) == wrapped
    assert wrap("tenant", wrapped) == wrapped
    assert unwrap("tenant", wrapped) == name


@pytest.mark.parametrize("name", ["TBW102", "rmq_sys_x", "CID_RMQ_SYS_TRANS", "TOOLS_CONSUMER", ""])
def test_names_of_rocketmq_have_no_namespace(name: str) -> None:
    assert wrap("tenant", name) == name
    assert unwrap("tenant", name) == name


def test_without_a_namespace_names_stay_as_they_are() -> None:
    assert wrap("", "orders") == "orders"
    assert unwrap("", "tenant%orders") == "tenant%orders"
    assert unwrap("", "%orders") == "%orders"


def test_a_name_of_another_namespace_is_not_unwrapped() -> None:
    assert unwrap("tenant", "other%orders") == "other%orders"
    assert unwrap("tenant", "%RETRY%other%billing") == "%RETRY%other%billing"
