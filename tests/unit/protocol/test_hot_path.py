"""The choice of a reader: compiled, or nothing where the plain forms are asked for."""

from __future__ import annotations

import os
import subprocess
import sys

from orbitmq.protocol import hot_path
from tests.unit.protocol.test_plain_sends import frame


def test_the_plain_form_can_be_asked_for() -> None:
    program = (
        "from orbitmq.protocol import hot_path; "
        "print(hot_path.IS_COMPILED, hot_path.read_usual_send(b'', 0, 0, b''))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ORBITMQ_PURE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )

    assert shown.stdout.split() == ["False", "None"]


def test_a_usual_send_is_read_where_the_reader_is_compiled() -> None:
    content = frame()

    send = hot_path.read_usual_send(content, 0, len(content), b"")

    assert (send is not None) == hot_path.IS_COMPILED
