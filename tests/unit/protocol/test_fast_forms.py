"""The choice of readers: compiled, or what the plain forms do where those are asked for."""

from __future__ import annotations

from orbitmq.protocol import fast_forms
from tests.unit.fresh_process import printed_by
from tests.unit.protocol.test_plain_batches import batch_frame
from tests.unit.protocol.test_plain_sends import frame


def test_the_plain_form_can_be_asked_for() -> None:
    program = (
        "from orbitmq.protocol import fast_forms; "
        "print(fast_forms.IS_COMPILED, fast_forms.read_usual_send(b'', 0, 0, b''), "
        "fast_forms.read_usual_batch(b'', 0, 0), fast_forms.read_entries.__module__)"
    )

    assert printed_by(program, ORBITMQ_PURE="1").split() == [
        "False",
        "None",
        "None",
        "orbitmq.protocol.plain_batches",
    ]


def test_a_usual_send_is_read_where_the_reader_is_compiled() -> None:
    content = frame()

    send = fast_forms.read_usual_send(content, 0, len(content), b"")

    assert (send is not None) == fast_forms.IS_COMPILED


def test_the_header_of_a_usual_batch_is_read_where_the_reader_is_compiled() -> None:
    content = batch_frame()

    batch = fast_forms.read_usual_batch(content, 0, len(content))

    assert (batch is not None) == fast_forms.IS_COMPILED
