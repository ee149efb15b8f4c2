"""What a replay shows before, meanwhile and at the end."""

from __future__ import annotations

import json

import pytest

from orbitmq.cli.replays.output import ProgressDisplay, facts_of, show_preview
from orbitmq.pipelines.replaying.sending import Sent
from orbitmq.pipelines.replaying.state import Progress
from tests.unit.pipelines.replaying.test_plan import plan

ROW = {
    "body": b"\xff\x00",
    "keys": "k1",
    "tags": None,
    "flag": 0,
    "properties": {"region": "eu", "KEYS": "k1", "RETRY_TOPIC": "orders", "__RMQ.X": "1"},
    "msgId": "of the message itself",
    "brokerName": "broker-a",
}


def test_a_preview_has_what_is_sent_and_not_what_brokers_noted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_preview({"messages": 20}, [ROW, {**ROW, "body": "é" * 300}], as_json=True)

    shown = json.loads(capsys.readouterr().out)
    assert shown["messages"] == 20
    assert shown["sample"][0] == {
        "body": "0xff00",
        "keys": "k1",
        "tags": None,
        "properties": "region=eu",
        "brokerName": "broker-a",
    }
    assert shown["sample"][1]["body"] == "é" * 200 + "…"


def test_facts_say_what_is_left_out_and_what_was_sent_before() -> None:
    facts = facts_of(
        plan(),
        Progress(digest="", chunks=1),
        source="topic orders",
        target="topic again",
        order="kept",
        rate=0.5,
    )

    assert (facts["messages"], facts["left_out"], facts["not_sent_yet"]) == (20, 30, 10)
    assert (facts["rate"], facts["chunks"]) == ("0.5 a second", 2)


def test_without_a_terminal_progress_is_a_line_with_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressDisplay(plan(), Progress(digest=""), is_quiet=False) as display:
        display.add(Sent(number=0, messages=10, rows=10))
        display.add(Sent(number=1, messages=10, rows=10))

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("20 of 20 messages, ")
    assert line.endswith("/s, 0s left")


def test_programs_get_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressDisplay(plan(), Progress(digest=""), is_quiet=True) as display:
        display.add(Sent(number=0, messages=20, rows=20))

    assert capsys.readouterr().err == ""
