"""The choice of readers: compiled, or what the plain forms do where those are asked for."""

from __future__ import annotations

import os
import subprocess
import sys

from orbitmq.protocol import hot_path
from tests.unit.protocol.test_plain_batches import batch_frame
from tests.unit.protocol.test_plain_sends import frame


def test_the_plain_form_can_be_asked_for() -> None:
    program = (
        "from orbitmq.protocol import hot_path; "
        "print(hot_path.IS_COMPILED, hot_path.read_usual_send(b'', 0, 0, b''), "
        "hot_path.read_usual_batch(b'', 0, 0), hot_path.read_entries.__module__)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ORBITMQ_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )

    assert shown.stdout.split() == ["False", "None", "None", "orbitmq.protocol.plain_batches"]


def test_a_usual_send_is_read_where_the_reader_is_compiled() -> None:
    content = frame()

    send = hot_path.read_usual_send(content, 0, len(content), b"")

    assert (send is not None) == hot_path.IS_COMPILED


def test_the_header_of_a_usual_batch_is_read_where_the_reader_is_compiled() -> None:
    content = batch_frame()

    batch = hot_path.read_usual_batch(content, 0, len(content))

    assert (batch is not None) == hot_path.IS_COMPILED
