"""The compiled reader: what it reads equals what the plain one reads."""

from __future__ import annotations

import pytest

from orbitmq.protocol import plain_sends
from orbitmq.protocol.hot_path import IS_COMPILED, read_usual_send
from tests.unit.protocol.test_plain_sends import LONG, SHORT, frame, mutations

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="there is no compiled form here")

_MARKS = b"CLUSTER\x01c\x02"


def _plain(content: bytes) -> object:
    try:
        return plain_sends.read_plain_send(content, 0, len(content), _MARKS)
    except Exception as error:  # noqa: BLE001  # whatever it is, the compiled form leaves it
        return type(error)


@pytest.mark.parametrize("content", [frame(), frame(LONG, code=10)])
def test_what_clients_write_is_read(content: bytes) -> None:
    send = read_usual_send(content, 0, len(content), _MARKS)

    assert send is not None
    assert send == _plain(content)


def test_letters_beyond_ascii_are_left_to_the_plain_form() -> None:
    content = frame({**SHORT, "i": "UNIQ_KEY\x01A1\x02KEYS\x01值\x02"})

    assert read_usual_send(content, 0, len(content), _MARKS) is None


@pytest.mark.parametrize("seed", range(8))
def test_whatever_it_reads_of_mutated_frames_the_plain_form_reads_alike(seed: int) -> None:
    read = 0
    for content in mutations(seed, 2500):
        send = read_usual_send(content, 0, len(content), _MARKS)
        if send is not None:
            read += 1
            assert send == _plain(content), content

    assert read > 100


def test_a_frame_that_is_cut_off_anywhere_is_left() -> None:
    content = frame()

    for end in range(len(content) - 6):
        assert read_usual_send(content, 0, end, _MARKS) is None
