"""JSON in the fastjson dialect."""

from __future__ import annotations

import json
from enum import Enum, IntEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import java_json
from orbitmq.errors import ProtocolError
from orbitmq.java_json import Dialect, EnumName, JavaInt, JavaLong, ObjectKeyed

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT
FINITE = st.floats(allow_nan=False, allow_infinity=False)
DOCUMENTS = st.recursive(
    SCALARS | FINITE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A key of maps, as Java's MessageQueue."""

    broker: str = msgspec.field(name="brokerName")
    queue_id: int = msgspec.field(name="queueId")
    topic: str


QUEUES = st.builds(Queue, broker=TEXT, queue_id=st.integers(0, 9), topic=TEXT)


class Table(msgspec.Struct, kw_only=True):
    """Maps keyed by objects, to numbers and to objects."""

    offsets: ObjectKeyed[Queue, JavaLong] = msgspec.field(default_factory=ObjectKeyed)
    consumers: dict[str, ObjectKeyed[Queue, dict[str, int]]] = {}


class Colour(EnumName):
    """A Java enum."""

    NAMES = ("RED", "GREEN")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One member of each kind."""

    name: str
    count: JavaInt = 0
    size: JavaLong = 0
    ratio: float = 0.0
    ready: bool = False
    note: str | None = None


# --- reading what Java writes ------------------------------------------------------------------


def test_integer_keys_are_unquoted() -> None:
    text = b'{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}}'

    decoded = java_json.decode(text, dict[str, dict[int, str]])

    assert decoded == {"brokerAddrs": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}}


def test_maps_of_integers_are_written_like_other_maps() -> None:
    table: dict[object, object] = {0: 12, -7: 2**63 - 1}

    assert java_json.encode(table) == b"{0:12,-7:9223372036854775807}"
    assert java_json.encode(table | {True: 1}) == b"{0:12,-7:9223372036854775807,true:1}"
    assert java_json.encode(table | {9: True}) == b"{0:12,-7:9223372036854775807,9:true}"
    assert java_json.encode(table | {9: None}) == b"{0:12,-7:9223372036854775807}"
    assert java_json.encode({}) == b"{}"
    assert java_json.encode({0: 12}, java_json.Dialect.STANDARD) == b'{"0":12}'


def test_integer_keys_may_be_quoted_negative_and_spaced() -> None:
    text = b'{ "0" : "a" , -7 : "b",\n8 :"c"}'

    assert java_json.decode(text, dict[int, str]) == {0: "a", -7: "b", 8: "c"}


def test_a_string_that_looks_like_an_integer_key_is_kept() -> None:
    text = b'{1:"{0:,5:a\\",6:",2:"broker-a:4;broker-b:4,7:"}'

    decoded = java_json.decode(text, dict[int, str])

    assert decoded == {1: '{0:,5:a",6:', 2: "broker-a:4;broker-b:4,7:"}


def test_an_object_key_becomes_its_own_json_text() -> None:
    text = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"queueId":1}:6}}'

    decoded = java_json.decode(text, dict[str, dict[str, int]])

    first, second = decoded["offsetTable"]
    assert java_json.decode(first.encode(), Queue) == Queue(broker="b", queue_id=0, topic="T")
    assert second == '{"queueId":1}'
    assert list(decoded["offsetTable"].values()) == [5, 6]


def test_braces_and_quotes_inside_an_object_key_do_not_end_it() -> None:
    text = rb'{{"topic":"}{\",:"}:[{"a":1},{"b":2}]}'

    decoded = java_json.decode(text, dict[str, list[dict[str, int]]])

    ((key, value),) = decoded.items()
    assert json.loads(key) == {"topic": '}{",:'}
    assert value == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("dialect", Dialect)
@given(keys=st.lists(QUEUES, max_size=3, unique=True))
def test_a_map_keyed_by_objects_survives_a_round_trip_in_either_dialect(
    keys: list[Queue], dialect: Dialect
) -> None:
    table = Table(
        offsets=ObjectKeyed({key: number for number, key in enumerate(keys)}),
        consumers={"c": ObjectKeyed({key: {"n": number} for number, key in enumerate(keys)})},
    )

    decoded = java_json.decode(java_json.encode(table, dialect), Table)

    assert decoded == table
    assert type(decoded.offsets) is ObjectKeyed


def test_keys_and_values_of_a_map_keyed_by_objects_may_contain_quoted_numbers_and_nulls() -> None:
    text = (
        b'{"offsets":{{"brokerName":"b","queueId":"1","topic":"T"}:"7",'
        b'{"brokerName":"b","queueId":2,"topic":"T"}:null}}'
    )

    decoded = java_json.decode(text, Table)

    assert decoded.offsets == {Queue(broker="b", queue_id=1, topic="T"): 7}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b'{"offsets":[1]}', "Expected `object`, got `list`"),
        (b'{"offsets":{"x":1}}', "expected a value, found 'x'"),
        (b'{"offsets":{"{}":1}}', "missing required field `brokerName`"),
        (b'{"offsets":{{"brokerName":"b","queueId":1,"topic":"T"}:"x"}}', "Expected `int`"),
    ],
)
def test_a_value_that_is_not_a_map_keyed_by_these_objects_is_refused(
    text: bytes, complaint: str
) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        java_json.decode(text, Table)


@pytest.mark.parametrize(
    ("text", "name"), [(b'"GREEN"', "GREEN"), (b"1", "GREEN"), (b"0", "RED"), (b'"BLUE"', "BLUE")]
)
def test_an_enum_is_read_by_name_known_or_not_and_by_position(text: bytes, name: str) -> None:
    decoded = java_json.decode(text, Colour)

    assert decoded == name
    assert type(decoded) is Colour
    assert java_json.encode([decoded]) == f'["{name}"]'.encode()


@pytest.mark.parametrize("text", [b"2", b"-1", b"1.0", b"[]", b"{}"])
def test_an_invalid_enum_value_is_refused_with_the_valid_ones(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="is not a Colour; there are RED, GREEN"):
        java_json.decode(text, Colour)


@pytest.mark.parametrize(
    "text",
    [
        b"{code:105,'remark':'it\\'s'}",
        b'{"code":105,"remark":"it\\\'s",}',
        b'\xef\xbb\xbf {"code" : 105, "remark" : "it\\x27s"}\r\n',
    ],
)
def test_extensions_of_fastjson_are_read(text: bytes) -> None:
    assert java_json.decode(text, dict[str, Any]) == {"code": 105, "remark": "it's"}


@pytest.mark.parametrize(
    ("escape", "character"),
    [
        ("\\b", "\b"), ("\\f", "\f"), ("\\n", "\n"), ("\\r", "\r"), ("\\t", "\t"), ("\\v", "\v"),
        ("\\0", "\0"), ("\\7", "\7"), ("\\/", "/"), ("\\\\", "\\"), ('\\"', '"'), ("\\'", "'"),
        ("\\x4a", "J"), ("\\u4e2d", "中"), ("\\ud83d\\ude00", "😀"),
    ],
)  # fmt: skip
def test_every_escape_that_fastjson_knows_is_read(escape: str, character: str) -> None:
    # The bare key makes sure that the whole document is translated.
    assert java_json.decode(f'{{a:"{escape}"}}'.encode(), dict[str, str]) == {"a": character}


@pytest.mark.parametrize("escape", ["\\q", "\\uZZZZ", "\\u12", "\\x1", "\\U0001"])
def test_an_unknown_escape_is_refused(escape: str) -> None:
    with pytest.raises(ProtocolError, match="unknown escape"):
        java_json.decode(f'{{a:"{escape}"}}'.encode(), dict[str, str])


def test_raw_control_characters_in_strings_are_accepted() -> None:
    assert java_json.decode(b'{"a":"x\ny\x00\x01"}', dict[str, str]) == {"a": "x\ny\0\1"}


def test_half_a_character_is_replaced() -> None:
    text = rb'{"a":"x\ud800","b":"\ude00\ud83d","c":"\ud83d\ude00"}'

    assert java_json.decode(text, dict[str, str]) == {
        "a": "x\ufffd",
        "b": "\ufffd\ufffd",
        "c": "😀",
    }


@pytest.mark.parametrize("gibberish", [b"\xff", b"\xed\xa0\x80", b"\xd6\xd0\xce\xc4", b"\xc3"])
def test_invalid_utf_8_is_replaced_as_in_java(gibberish: bytes) -> None:
    decoded = java_json.decode(b'{"a":"x' + gibberish + b'y"}', dict[str, str])

    assert decoded["a"].startswith("x\ufffd")
    assert decoded["a"].endswith("y")


def test_a_null_member_counts_as_absent() -> None:
    text = b'{"name":"a","count":null,"size":null,"ready":null,"note":null,"more":[{"x":null}]}'

    assert java_json.decode(text, Row) == Row(name="a")


@pytest.mark.parametrize(
    "text",
    [
        b'{"count":null,"name":"a","more":{0:"x"}}',
        b'{"count":"0","name":"a","more":{0:"x"}}',
        b'{"count":null,"name":"a",more:{0:"x"}}',
        b'{"size":null,"name":"a","more":"\xff"}',
    ],
)
def test_nulls_and_quoted_numbers_may_come_before_the_dialect(text: bytes) -> None:
    assert java_json.decode(text, Row) == Row(name="a")


def test_a_null_value_leaves_its_key_out_of_a_map() -> None:
    assert java_json.decode(b'{"table":{"a":null,"b":"x"}}', dict[str, dict[str, str]]) == {
        "table": {"b": "x"}
    }


def test_numbers_and_booleans_may_be_quoted() -> None:
    text = b'{"name":"5","count":"5","size":"-6","ratio":"0.5","ready":"true"}'

    decoded = java_json.decode(text, Row)

    assert decoded == Row(name="5", count=5, size=-6, ratio=0.5, ready=True)


def test_numbers_in_a_list_may_be_quoted() -> None:
    assert java_json.decode(b'["2598919",-5]', list[int]) == [2598919, -5]


def test_of_a_member_given_twice_the_last_counts() -> None:
    assert java_json.decode(b'{"name":"a","count":1,"count":2}', Row) == Row(name="a", count=2)
    assert java_json.decode(b"{1:1,1:2}", dict[int, int]) == {1: 2}


def test_unknown_members_are_ignored() -> None:
    text = b'{"name":"a","unknown":{"deep":[{0:{"x":{}}}]},"count":3}'

    assert java_json.decode(text, Row) == Row(name="a", count=3)


# --- refusing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b" ",
        b"{",
        b"}",
        b"{]",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1 "b":2}',
        b'{"a":1}}',
        b'{"a":1} trailing',
        b"[1,,2]",
        b"[1 2]",
        b"{a:b}",
        b"{a:'b}",
        b'{"a":"b}',
        b"{a:+1}",
        b"{a:01}",
        b"{a:1.}",
        b"{a:NaN}",
        b"{a:\xd9\xa1}",
        b"{:1}",
        b"{a:1,",
        b"[",
        b"nul",
        b"{a:[1}",
    ],
)
def test_text_that_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        java_json.decode(text, dict[str, Any])


@pytest.mark.parametrize(
    "text",
    [b"[]", b"5", b"null", b'{"count":1}', b'{"name":"a","count":"x"}', b'{"name":{},"count":[]}'],
)
def test_a_document_of_another_shape_is_refused_with_its_first_bytes(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="expected shape") as refused:
        java_json.decode(text, Row)

    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("member", "number"), [("count", 2**31), ("count", -(2**31) - 1), ("size", 2**63)]
)
def test_numbers_wider_than_javas_are_refused(member: str, number: int) -> None:
    with pytest.raises(ProtocolError):
        java_json.decode(f'{{"name":"a","{member}":{number}}}'.encode(), Row)


@pytest.mark.parametrize("digits", [25, 5000, 300_000])
def test_a_number_of_any_length_is_refused_at_once(digits: int) -> None:
    for number in (b"9" * digits, b"1.5" + b"9" * digits, b"1e" + b"9" * digits):
        with pytest.raises(ProtocolError):
            java_json.decode(b'{"name":"a","count":' + number + b"}", Row)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"{a:", b"{0:", b"{'a':[", b"{{"])
@pytest.mark.parametrize("depth", [100, 20_000])
def test_deep_nesting_is_refused(opening: bytes, depth: int) -> None:
    with pytest.raises(ProtocolError):
        java_json.decode(opening * depth, Row)


def test_deep_nesting_of_an_unknown_member_is_refused_if_not_standard() -> None:
    depth = java_json.DEPTH_MAX + 1
    text = b"{name:'a',unknown:" + b"[" * depth + b"]" * depth + b"}"

    with pytest.raises(ProtocolError, match="nested deeper"):
        java_json.decode(text, Row)


def test_nulls_too_deep_to_be_looked_for_are_refused() -> None:
    depth = 100_000
    text = b'{"name":"a","count":null,"unknown":' + b"[" * depth + b"]" * depth + b"}"

    with pytest.raises(ProtocolError):
        java_json.decode(text, Row)


def test_object_keys_inside_object_keys_are_refused() -> None:
    # Each level doubles the backslashes: 60 of them would fill any memory.
    text = b"{" * 60 + b"a:1" + b"}:1" * 59 + b"}"

    with pytest.raises(ProtocolError, match="object key inside an object key"):
        java_json.decode(text, dict[str, Any])


def test_an_object_key_may_contain_objects() -> None:
    decoded = java_json.decode(b'{{"a":{"b":[1]}}:1,[2]:3}', dict[str, int])

    assert decoded == {'{"a":{"b":[1]}}': 1, "[2]": 3}


@pytest.mark.parametrize(
    "text",
    [
        b'"' + b"a" * 2_000_000,
        b"'" + b"a" * 2_000_000 + b"'",
        b'"' + b"\\n" * 1_000_000,
        b'"' * 1_000_001,
        b" " * 2_000_000 + b"'",
        b"{" * 1_000_000,
        b"," * 1_000_000,
        b",{a" * 500_000,
        b"{ " * 500_000,
        b"{a:1," * 300_000,
        b"{" + b"1" * 2_000_000,
    ],
    ids=lambda text: f"{text[:6]!r} and so on",
)
@pytest.mark.timeout(120)
def test_large_documents_that_are_not_json_are_refused_in_linear_time(text: bytes) -> None:
    with pytest.raises(ProtocolError):
        java_json.decode(text, dict[str, Any])


def test_only_keys_are_translated_in_documents_of_any_length() -> None:
    count = 50_000
    keys = b",".join(b'%d:"address of %d"' % (number, number) for number in range(count))
    assert len(keys) > java_json.TRANSLATED_BYTES_MAX

    decoded = java_json.decode(b"{" + keys + b"}", dict[int, str])
    with pytest.raises(ProtocolError, match="is not standard"):
        java_json.decode(b"{" + keys + b",a:'b'}", dict[str, str])

    assert len(decoded) == count


def test_nulls_are_tolerated_up_to_a_length() -> None:
    few = b"[null" + b',{"a":null}' * 10 + b"]"
    many = b"[" + b'{"a":null},' * (java_json.TOLERATED_BYTES_MAX // 11 + 1) + b"{}]"

    with pytest.raises(ProtocolError):
        java_json.decode(few, list[dict[str, int]])
    with pytest.raises(ProtocolError):
        java_json.decode(many, list[dict[str, int]])

    assert java_json.decode(few.replace(b"null,", b"{},", 1), list[dict[str, int]]) == [{}] * 11


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused_with_a_protocol_error(text: bytes) -> None:
    for shape in (dict[str, Any], dict[int, str], list[int], Row):
        try:
            java_json.decode(text, shape)
        except ProtocolError:
            continue


@given(
    st.lists(
        st.sampled_from(
            [*"{}[]:,\"'\\ \n0159.eE+-", "null", "true", "a", "\\u", "d800", "\0", "中", '"a":']
        ),
        max_size=30,
    )
)
def test_pieces_of_json_in_any_order_are_read_or_refused_with_a_protocol_error(
    pieces: list[str],
) -> None:
    try:
        decoded = java_json.decode("".join(pieces).encode(), dict[str, Any])
    except ProtocolError:
        return
    # Any document that is read can be written again.
    msgspec.json.encode(decoded)


# --- translating -------------------------------------------------------------------------------


@given(DOCUMENTS, st.booleans(), st.sampled_from([None, 1]))
def test_translation_agrees_with_the_json_module_on_standard_json(
    document: object,
    ascii_only: bool,  # noqa: FBT001  # given by Hypothesis
    indent: int | None,
) -> None:
    text = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()

    assert json.loads(java_json.to_standard(text)) == document


@given(DOCUMENTS)
def test_both_readings_of_keys_agree(document: object) -> None:
    text = java_json.encode({7: document, Queue(broker="b", queue_id=1, topic="t"): [{8: "x"}]})

    quick = java_json.decode(text, dict[str, Any])
    thorough = json.loads(java_json.to_standard(text))

    assert quick == thorough


# --- writing -----------------------------------------------------------------------------------


def test_fastjson_leaves_integer_and_object_keys_unquoted() -> None:
    value = {0: "a", Queue(broker="b", queue_id=0, topic="T"): 5, "text": 6}

    encoded = java_json.encode(value)

    assert encoded == b'{0:"a",{"brokerName":"b","queueId":0,"topic":"T"}:5,"text":6}'


def test_standard_json_quotes_every_key_and_is_ascii() -> None:
    value = {0: "中", Queue(broker="b", queue_id=0, topic="T"): 5}

    encoded = java_json.encode(value, Dialect.STANDARD)

    assert encoded == (
        b'{"0":"\\u4e2d","{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":5}'
    )
    assert list(json.loads(encoded)) == ["0", '{"brokerName":"b","queueId":0,"topic":"T"}']


def test_fastjson_writes_text_beyond_ascii_as_it_is() -> None:
    assert java_json.encode({"a": "中😀\n\0"}) == '{"a":"中😀\\n\\u0000"}'.encode()


def test_none_members_are_left_out_and_none_items_are_not() -> None:
    assert java_json.encode([Row(name="a"), {"b": None}, None]) == (
        b'[{"name":"a","count":0,"size":0,"ratio":0.0,"ready":false},{},null]'
    )


def test_every_sort_of_value_has_its_json_form() -> None:
    class Colour(Enum):
        RED = "RED"

    class Level(IntEnum):
        HIGH = 3

    value = [True, False, 1, -2.5, "x", (1, 2), {3}, frozenset({4}), Colour.RED, Level.HIGH]

    assert java_json.encode(value) == b'[true,false,1,-2.5,"x",[1,2],[3],[4],"RED",3]'


def test_a_value_without_a_json_form_is_a_programming_error() -> None:
    with pytest.raises(TypeError, match="no JSON form for bytes"):
        java_json.encode({"a": b"x"})


@given(st.dictionaries(st.integers(-(2**63), 2**63 - 1), TEXT), st.sampled_from(Dialect))
def test_maps_with_integer_keys_survive_a_round_trip(
    value: dict[int, str], dialect: Dialect
) -> None:
    assert java_json.decode(java_json.encode(value, dialect), dict[int, str]) == value


@given(st.dictionaries(QUEUES, st.integers(-(2**63), 2**63 - 1)), st.sampled_from(Dialect))
def test_maps_with_object_keys_survive_a_round_trip(
    value: dict[Queue, int], dialect: Dialect
) -> None:
    decoded = java_json.decode(java_json.encode(value, dialect), dict[str, int])

    assert {
        java_json.decode(key.encode(), Queue): number for key, number in decoded.items()
    } == value


@given(st.lists(DOCUMENTS), st.sampled_from(Dialect))
def test_documents_survive_a_round_trip_without_their_null_members(
    value: list[Any], dialect: Dialect
) -> None:
    decoded = java_json.decode(java_json.encode(value, dialect), list[Any])

    assert decoded == _without_null_members(value)


@given(st.builds(Row, name=TEXT, count=st.integers(-(2**31), 2**31 - 1), note=st.none() | TEXT))
def test_structs_survive_a_round_trip(row: Row) -> None:
    for dialect in Dialect:
        assert java_json.decode(java_json.encode(row, dialect), Row) == row


def _without_null_members(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_null_members(member)
            for key, member in value.items()
            if member is not None
        }
    return [_without_null_members(item) for item in value] if isinstance(value, list) else value


class Plain(msgspec.Struct):
    text: str = msgspec.field(name="t")
    number: JavaLong = 0
    flag: bool = False
    texts: dict[str, str] = {}


class Described(Plain):
    """The same, and one member more, so that it is written member by member."""

    more: float | None = None


class Nested(msgspec.Struct):
    first: int | None = None
    second: Plain | None = None
    third: str | None = None
    by_name: dict[str, Plain] = {}
    several: list[int | None] = []
    last: str | None = None


class DescribedNested(Nested):
    """The same, and one member more, so that it is written member by member."""

    more: float | None = None


@given(st.text(), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_a_plain_struct_is_written_as_any_other(text: str, number: int, flag: bool) -> None:  # noqa: FBT001  # given
    plain = Plain(text, number, flag, {text: text})
    described = Described(text, number, flag, {text: text})

    assert java_json.encode(plain) == java_json.encode(described)
    assert java_json.encode(plain, Dialect.STANDARD) == java_json.encode(
        described, Dialect.STANDARD
    )


_HOSTILE = st.one_of(
    st.text(), st.sampled_from([',"a":null', '{"a":null', '"', "\\", ':null,"', '\\",\\"b":null'])
)


@given(
    st.none() | st.just(1),
    st.none() | _HOSTILE,
    st.none() | _HOSTILE,
    _HOSTILE,
    st.none() | _HOSTILE,
)
def test_null_members_of_nested_structs_are_left_out_whatever_the_texts_hold(
    first: int | None, inner: str | None, third: str | None, name: str, last: str | None
) -> None:
    second = None if inner is None else Plain(inner, 1, True, {name: inner})
    by_name = {name: Plain(name, 2, False, {name: name})}
    members = (first, second, third, by_name, [first, None, 3], last)

    assert java_json.encode(Nested(*members)) == java_json.encode(DescribedNested(*members))
