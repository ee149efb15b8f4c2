"""One run of a replay: how it is stopped, and how it reaches clusters."""

from __future__ import annotations

import os
import signal
import threading

from orbitmq.cli.replays.job import spark_options, stopped_by_signals


def test_the_first_signal_lets_the_chunk_end_and_the_second_ends_the_program() -> None:
    received: list[int] = []
    stopping = threading.Event()
    before = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        with stopped_by_signals(stopping):
            os.kill(os.getpid(), signal.SIGINT)
            assert (stopping.is_set(), received) == (True, [])
            os.kill(os.getpid(), signal.SIGINT)
            assert received == [signal.SIGINT]
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)

    assert received == [signal.SIGINT] * 2


def test_settings_of_a_client_reach_spark_under_its_names() -> None:
    assert spark_options(
        {
            "namesrv": "a:1;b:2",
            "access_key": "ak",
            "secret_key": "sk",
            "security_token": "t",
            "tls": True,
        }
    ) == {
        "namesrvAddr": "a:1;b:2",
        "accessKey": "ak",
        "secretKey": "sk",
        "securityToken": "t",
        "tls": "true",
    }
