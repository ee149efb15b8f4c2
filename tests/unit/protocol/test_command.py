"""Commands: requests and responses as whole frames, in both encodings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ProtocolError
from orbitmq.model.versions import OUR_VERSION
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Command,
    decode_command,
    decode_frame,
    request,
)
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.languages import Language
from orbitmq.protocol.requests.key_values import KeyValueReply
from orbitmq.protocol.requests.routing import GetRoute

INT_32 = st.integers(-(2**31), 2**31 - 1)
INT_16 = st.integers(-(2**15), 2**15 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

COMMANDS = st.builds(
    Command,
    code=INT_16 | INT_32,
    # Only empty values cannot be written in the binary encoding.
    fields=st.dictionaries(TEXT, TEXT.filter(bool), max_size=5),
    body=st.binary(max_size=40),
    remark=TEXT,
    opaque=INT_32,
    flag=INT_32,
    version=INT_16 | INT_32,
    language=st.sampled_from(Language),
    encoding=st.sampled_from(Encoding),
)

ROUTE_REQUEST = Command(
    code=RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={"topic": "TopicTest"}, opaque=1
)
ROUTE_REQUEST_BINARY = bytes.fromhex(
    "0000002d 01000029 0069 03 01df 00000001 00000000 00000000 00000014"
    " 0005 746f706963 00000009 546f70696354657374"
)
ROUTE_REQUEST_JSON = (
    bytes.fromhex("00000089 00000085")
    + b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"PYTHON","opaque":1,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)


# --- encoding and decoding ---------------------------------------------------------------------


def test_the_binary_vector_of_the_reference_is_written_and_read() -> None:
    command = Command(code=105, fields={"topic": "TopicTest"}, opaque=1, encoding=Encoding.BINARY)

    assert command.encode() == ROUTE_REQUEST_BINARY
    assert decode_frame(ROUTE_REQUEST_BINARY) == command


def test_the_json_vector_of_the_reference_is_written_and_read() -> None:
    assert ROUTE_REQUEST.encode() == ROUTE_REQUEST_JSON
    assert decode_frame(ROUTE_REQUEST_JSON) == ROUTE_REQUEST


@given(COMMANDS)
def test_a_command_survives_a_round_trip_in_either_encoding(command: Command) -> None:
    decoded = decode_frame(command.encode())

    # A code or version that does not fit 16 bits is sent as JSON.
    command.encoding = decoded.encoding
    assert decoded == command


@given(COMMANDS, st.binary(max_size=20), st.binary(max_size=20))
def test_a_command_is_read_from_the_middle_of_a_chunk(
    command: Command, before: bytes, after: bytes
) -> None:
    frame = command.encode()
    chunk = bytearray(before + frame + after)

    decoded = decode_command(chunk, len(before), len(before) + len(frame))
    chunk.clear()

    assert decoded == decode_frame(frame)


@pytest.mark.parametrize(
    ("code", "version", "encoding"),
    [
        (32_767, OUR_VERSION, Encoding.BINARY),
        (-32_768, OUR_VERSION, Encoding.BINARY),
        (32_768, OUR_VERSION, Encoding.JSON),
        (RequestCode.POP_MESSAGE, OUR_VERSION, Encoding.JSON),
        (10, 32_767, Encoding.BINARY),
        (10, 32_768, Encoding.JSON),
    ],
)
def test_a_command_that_does_not_fit_the_binary_header_falls_back_to_json(
    code: int, version: int, encoding: Encoding
) -> None:
    command = Command(code=code, version=version, encoding=Encoding.BINARY)

    decoded = decode_frame(command.encode())

    assert decoded.encoding is encoding
    assert (decoded.code, decoded.version) == (code, version)


def test_an_empty_value_is_a_missing_field_in_the_binary_encoding_only() -> None:
    fields = {"a": "", "b": "x"}

    as_json = decode_frame(Command(code=1, fields=fields).encode())
    as_binary = decode_frame(Command(code=1, fields=fields, encoding=Encoding.BINARY).encode())

    assert as_json.fields == fields
    assert as_binary.fields == {"b": "x"}


@pytest.mark.parametrize("encoding", Encoding)
def test_a_remark_may_contain_quotes_newlines_and_any_script(encoding: Encoding) -> None:
    remark = 'no "topic"\n\tfür 中文 \\ 😀 \u2028 \x00 \x7f'
    command = Command(code=1, remark=remark, flag=RESPONSE_FLAG, encoding=encoding)

    assert decode_frame(command.encode()).remark == remark


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [0, 1, 3, 4, 7, 8, 20, len(ROUTE_REQUEST_JSON) - 1])
def test_a_frame_that_is_cut_off_is_refused(kept: int) -> None:
    with pytest.raises(ProtocolError):
        decode_frame(ROUTE_REQUEST_JSON[:kept])


def test_more_than_one_frame_is_refused_where_one_is_expected() -> None:
    with pytest.raises(ProtocolError, match="expected one frame"):
        decode_frame(ROUTE_REQUEST_JSON + b"\x00")


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_read_or_refused_with_a_protocol_error(frame: bytes) -> None:
    try:
        decode_frame(frame)
    except ProtocolError:
        return


@given(st.binary(max_size=60), st.sampled_from(Encoding))
def test_arbitrary_headers_are_read_or_refused_with_a_protocol_error(
    header: bytes, encoding: Encoding
) -> None:
    frame = (4 + len(header)).to_bytes(4, "big") + (encoding << 24 | len(header)).to_bytes(4, "big")
    try:
        decode_frame(frame + header)
    except ProtocolError:
        return


@given(
    COMMANDS,
    st.lists(st.tuples(st.integers(min_value=0), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_mutated_frames_are_read_or_refused_with_a_protocol_error(
    command: Command, mutations: list[tuple[int, int]]
) -> None:
    frame = bytearray(command.encode())
    for position, byte in mutations:
        # The length is right, so that the rest is parsed.
        frame[4 + position % (len(frame) - 4)] = byte
    try:
        decoded = decode_frame(frame)
    except ProtocolError:
        return
    # Any command that is read can be answered.
    decoded.reply(remark=decoded.remark).encode()


# --- requests and replies ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "is_response", "is_oneway"),
    [(0, False, False), (1, True, False), (2, False, True), (3, True, True), (-4, False, False)],
)
def test_two_bits_of_the_flag_mark_responses_and_one_way_requests(
    flag: int, *, is_response: bool, is_oneway: bool
) -> None:
    command = Command(code=1, flag=flag)

    assert command.is_response is is_response
    assert command.is_oneway is is_oneway


def test_a_request_has_the_code_and_the_fields_of_its_header() -> None:
    made = request(GetRoute(topic="orders"), b"body", encoding=Encoding.BINARY)

    assert made == Command(
        code=105, fields={"topic": "orders"}, body=b"body", encoding=Encoding.BINARY
    )
    assert made.language is Language.PYTHON
    assert made.version == OUR_VERSION


@pytest.mark.parametrize("encoding", Encoding)
def test_a_reply_echoes_opaque_and_encoding_and_has_our_version(encoding: Encoding) -> None:
    asked = Command(
        code=101, opaque=-5, version=317, language=Language.GO, flag=4, encoding=encoding
    )

    reply = asked.reply(KeyValueReply(value="v"), body=b"body")

    assert reply == Command(
        code=ResponseCode.SUCCESS,
        fields={"value": "v"},
        body=b"body",
        opaque=-5,
        flag=RESPONSE_FLAG,
        encoding=encoding,
    )


def test_a_reply_without_a_header_still_has_an_object_of_fields() -> None:
    asked = Command(code=104, flag=ONEWAY_FLAG)

    reply = asked.reply(code=ResponseCode.SYSTEM_ERROR, remark="why")

    assert reply.is_response
    assert not reply.is_oneway
    assert b'"extFields":{}' in reply.encode()
    assert (reply.code, reply.remark) == (1, "why")


def test_commands_do_not_share_their_default_fields() -> None:
    Command(code=1).fields["a"] = "b"

    assert Command(code=1).fields == {}
