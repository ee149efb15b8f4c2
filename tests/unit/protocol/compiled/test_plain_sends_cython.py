"""The compiled reader of headers: what it reads equals what the plain one reads."""

from __future__ import annotations

import pytest

from orbitmq.protocol import plain_batches, plain_sends
from orbitmq.protocol.fast_forms import IS_COMPILED, read_usual_batch, read_usual_send
from orbitmq.protocol.frame import Encoding
from tests.unit.protocol.test_plain_batches import HEADER, LONG_HEADER, batch_frame
from tests.unit.protocol.test_plain_sends import LONG, SHORT, frame, mutations

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="there is no compiled form here")

_MARKS = b"CLUSTER\x01c\x02"


def _plain(content: bytes) -> object:
    try:
        return plain_sends.read_plain_send(content, 0, len(content), _MARKS)
    except Exception as error:  # noqa: BLE001  # whatever it is, the compiled form leaves it
        return type(error)


def _plain_batch(content: bytes) -> object:
    try:
        return plain_batches.read_plain_batch(content, 0, len(content))
    except Exception as error:  # noqa: BLE001  # as above
        return type(error)


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize(("fields", "code"), [(SHORT, 310), (LONG, 10)])
def test_what_clients_write_is_read(fields: dict[str, str], code: int, encoding: Encoding) -> None:
    content = frame(fields, code=code, encoding=encoding)

    send = read_usual_send(content, 0, len(content), _MARKS)

    assert send is not None
    assert send == _plain(content)


@pytest.mark.parametrize("encoding", list(Encoding))
def test_letters_beyond_ascii_are_left_to_the_plain_form(encoding: Encoding) -> None:
    content = frame({**SHORT, "i": "UNIQ_KEY\x01A1\x02KEYS\x01值\x02"}, encoding=encoding)

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


@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_frame_that_is_cut_off_anywhere_is_left(encoding: Encoding) -> None:
    content = frame(encoding=encoding)

    for end in range(len(content) - 6):
        assert read_usual_send(content, 0, end, _MARKS) is None


@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_header_that_ends_anywhere_before_its_end_is_left(encoding: Encoding) -> None:
    content = frame(encoding=encoding)

    for header_bytes in range(len(content) - 8 - len(b"hello")):
        claimed = content[:5] + header_bytes.to_bytes(3) + content[8:]
        assert read_usual_send(claimed, 0, len(claimed), _MARKS) is None


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (HEADER, 320),
        (HEADER, 310),
        (LONG_HEADER, 10),
        ({name: text for name, text in HEADER.items() if name not in "ij"}, 320),
        ({**HEADER, "i": "WAIT\x01false\x02"}, 320),
    ],
    ids=str,
)
def test_headers_of_batches_are_read(fields: dict[str, str], code: int, encoding: Encoding) -> None:
    content = batch_frame(fields, code=code, encoding=encoding)

    batch = read_usual_batch(content, 0, len(content))

    assert batch is not None
    assert batch == _plain_batch(content)
    assert read_usual_send(content, 0, len(content), _MARKS) is None


@pytest.mark.parametrize(
    "fields",
    [
        SHORT,
        {**HEADER, "f": "1"},
        {**HEADER, "i": "WAIT\x01TRUE\x02"},
        {**HEADER, "i": "long\x01" + "x" * 600},
    ],
    ids=["one message", "compressed", "odd", "many properties"],
)
def test_other_headers_are_no_usual_batches(fields: dict[str, str]) -> None:
    content = batch_frame(fields)

    assert read_usual_batch(content, 0, len(content)) is None


@pytest.mark.parametrize("seed", range(8))
def test_whatever_it_reads_of_mutated_batches_the_plain_form_reads_alike(seed: int) -> None:
    shapes = [
        batch_frame(fields, code=code, encoding=encoding)
        for fields, code in ((HEADER, 320), (LONG_HEADER, 10))
        for encoding in Encoding
    ]
    read = 0
    for content in mutations(seed, 2500, shapes):
        batch = read_usual_batch(content, 0, len(content))
        if batch is not None:
            read += 1
            assert batch == _plain_batch(content), content

    assert read > 100
