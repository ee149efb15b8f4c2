"""Sends as frames: the same as the ordinary way writes, byte for byte where it matters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol import fast_forms
from orbitmq.protocol.command import decode_frame
from orbitmq.protocol.plain_sends import PlainSend
from orbitmq.protocol.requests.sending import SendBatch, SendMessageShort
from orbitmq.protocol.send_frames import SendFrames

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
INTS = st.integers(-(2**31), 2**31 - 1)


def frames_of(group: str = "g", topic: str = "t", broker_name: str = "b") -> SendFrames:
    return SendFrames(
        group=group,
        topic=topic,
        template_topic="TBW102",
        template_queues=4,
        queue_id=7,
        broker_name=broker_name,
    )


@given(
    names=st.tuples(NAMES, NAMES, NAMES),
    properties=st.text(st.characters(codec="utf-8")),
    body=st.binary(max_size=50),
    numbers=st.tuples(INTS, INTS, st.integers(0, 2**62)),
    opaque=st.integers(0, 2**31 - 1),
    batch=st.booleans(),
    oneway=st.booleans(),
)
def test_a_frame_says_the_same_as_the_command(
    names: tuple[str, str, str],
    properties: str,
    body: bytes,
    numbers: tuple[int, int, int],
    opaque: int,
    batch: bool,  # noqa: FBT001  # given by Hypothesis
    oneway: bool,  # noqa: FBT001  # given by Hypothesis
) -> None:
    frames = frames_of(*names)
    flag, system_flag, born_ms = numbers

    frame = frames.encode(
        opaque, body, properties, flag, system_flag, born_ms, batch=batch, oneway=oneway
    )

    command = frames.command(body, properties, flag, system_flag, born_ms, batch=batch)
    command.opaque = opaque
    command.flag = 2 if oneway else 0
    assert decode_frame(frame) == command
    header = (SendBatch if batch else SendMessageShort).decode(command.fields)
    assert (header.producer_group, header.topic, header.broker_name) == names
    assert (header.flag, header.system_flag, header.born_timestamp_ms) == numbers
    assert (header.properties, header.batch, header.queue_id) == (properties, batch, 7)
    assert (header.retries, header.retries_max, header.unit_mode) == (0, None, False)


def test_a_send_is_written_under_letters_with_the_codes_of_java() -> None:
    frame = frames_of().encode(5, b"body", "UNIQ_KEY\x01A1\x02", 3, 0, 1_700_000_000_000)

    assert frame[8:] == (
        b'{"code":310,"extFields":{"a":"g","b":"t","c":"TBW102","d":"4","e":"7","f":"0",'
        b'"g":"1700000000000","h":"3","i":"UNIQ_KEY\\u0001A1\\u0002","j":"0","k":"false",'
        b'"m":"false","n":"b"},"flag":0,"language":"PYTHON","opaque":5,'
        b'"serializeTypeCurrentRPC":"JSON","version":479}body'
    )
    batch = frames_of().encode(5, b"body", "", 3, 0, 1_700_000_000_000, batch=True)
    assert batch[8:].startswith(b'{"code":320,')


def test_a_broker_reads_such_a_send_with_its_fast_form() -> None:
    if fast_forms.read_send is None:
        pytest.skip("there is no compiled form here")
    frame = frames_of().encode(5, b"body", "UNIQ_KEY\x01A1\x02", 3, 0, 1_700_000_000_000)

    plain = fast_forms.read_send(frame, 0, len(frame), b"")

    assert isinstance(plain, PlainSend)
    assert (plain.topic, plain.queue_id, plain.flag, plain.body) == (b"t", 7, 3, b"body")


@pytest.mark.parametrize("retries", [None, 3])
def test_a_retried_message_has_its_number_of_retries(retries: int | None) -> None:
    command = frames_of().command(b"b", "", 0, 0, 1, retries=retries, retries_max=16)

    assert command.fields["j"] == str(retries or 0)
    assert command.fields["l"] == "16"
