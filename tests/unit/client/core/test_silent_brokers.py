"""Brokers that did not answer are avoided, but not for ever."""

from __future__ import annotations

from orbitmq.client.core.silent_brokers import SILENT_MS, SilentBrokers


class Time:
    now_ms = 0.0


def silent(*addresses: str) -> tuple[SilentBrokers, Time]:
    time = Time()
    brokers = SilentBrokers(lambda: time.now_ms)
    for address in addresses:
        brokers.note(address)
    return brokers, time


def test_a_broker_that_did_not_answer_is_tried_again_after_a_minute() -> None:
    brokers, time = silent("a:1")

    time.now_ms = SILENT_MS - 1
    assert "a:1" in brokers
    assert "b:1" not in brokers
    time.now_ms = SILENT_MS
    assert "a:1" not in brokers


def test_a_broker_that_answers_is_used_at_once() -> None:
    brokers, _ = silent("a:1", "b:1")

    brokers.heard("a:1")
    brokers.heard(None)

    assert "a:1" not in brokers
    assert "b:1" in brokers


def test_brokers_that_left_all_routes_are_forgotten() -> None:
    brokers, _ = silent("a:1", "b:1")

    brokers.keep(frozenset({"b:1"}))

    assert "a:1" not in brokers
    assert "b:1" in brokers
