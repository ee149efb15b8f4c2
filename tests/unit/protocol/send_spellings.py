"""Sends in all the ways in which clients write their headers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding, encode_frame
from orbitmq.record.batch import BatchedMessage, encode_batch

# The fields of a send, by their long names; each has a letter as well.
LETTERS = {
    "producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d",
    "queueId": "e", "sysFlag": "f", "bornTimestamp": "g", "flag": "h", "properties": "i",
    "reconsumeTimes": "j", "unitMode": "k", "maxReconsumeTimes": "l", "batch": "m", "bname": "n",
}  # fmt: skip
REQUIRED = [*LETTERS][:8]
OPTIONAL = [*LETTERS][8:]
TEXTS = {"producerGroup", "topic", "defaultTopic", "properties", "bname"}
PROPERTIES = "UNIQ_KEY\x017F0001\x02KEYS\x01k1 k2\x02TAGS\x01TagA\x02WAIT\x01true\x02"
FIELDS = {
    "producerGroup": "producers", "topic": "orders", "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4", "queueId": "1", "sysFlag": "0",
    "bornTimestamp": "1700000000000", "flag": "-7", "properties": PROPERTIES,
    "reconsumeTimes": "0", "unitMode": "false", "maxReconsumeTimes": "16", "batch": "false",
    "bname": "broker-a",
}  # fmt: skip
MESSAGES = [
    BatchedMessage(-7, b"one", b"UNIQ_KEY\x01A1\x02TAGS\x01a\x02WAIT\x01true\x02"),
    BatchedMessage(0, b"", b"UNIQ_KEY\x01A2\x02n\xc3\xa4me\x01\xe5\x80\xbc"),
    BatchedMessage(2**31 - 1, b"x" * 300, b"KEYS\x01k1 k2\x02UNIQ_KEY\x01A3"),
]
Spelling = Callable[[int, dict[str, str], bytes], bytes]


def named(code: int, fields: dict[str, str]) -> dict[str, str]:
    """Give fields the names that a request code has for them."""
    return fields if code == 10 else {LETTERS[name]: text for name, text in fields.items()}


def _json_frame(header: str, body: bytes) -> bytes:
    return encode_frame(header.encode("utf-8", "surrogatepass"), body, Encoding.JSON)


def like_java(code: int, fields: dict[str, str], body: bytes) -> bytes:
    return Command(code=code, fields=named(code, fields), body=body, opaque=77).encode()


def like_java_in_binary(code: int, fields: dict[str, str], body: bytes) -> bytes:
    fields = named(code, fields)
    return Command(
        code=code, fields=fields, body=body, opaque=77, encoding=Encoding.BINARY
    ).encode()


def like_go(code: int, fields: dict[str, str], body: bytes) -> bytes:
    """Go's encoder sorts maps, and escapes characters that are special in HTML."""
    members = {
        "code": code, "language": "GO", "version": 317, "opaque": 77, "flag": 0, "remark": "",
        "extFields": dict(sorted(named(code, fields).items())),
    }  # fmt: skip
    text = json.dumps(members, separators=(",", ":"), ensure_ascii=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return _json_frame(text, body)


def like_cpp(code: int, fields: dict[str, str], body: bytes) -> bytes:
    """C++ sorts all members, leaves some numbers bare, and ends its header with a line break."""
    bare = ("defaultTopicQueueNums", "queueId", "sysFlag", "flag")
    values: dict[str, Any] = {
        name: int(text) if name in bare and text.lstrip("-").isdigit() else text
        for name, text in fields.items()
    }
    signed = {"AccessKey": "", "OnsChannel": "", "Signature": ""}
    members = {
        "code": code, "extFields": dict(sorted({**named(code, values), **signed}.items())),
        "flag": 0, "language": "CPP", "opaque": 77, "remark": "", "version": 64,
    }  # fmt: skip
    return _json_frame(json.dumps(members, separators=(",", ":")) + "\n", body)


def like_node(code: int, fields: dict[str, str], body: bytes) -> bytes:
    """JavaScript writes numbers and booleans as such, and missing values as null."""
    values: dict[str, Any] = {}
    for name, text in fields.items():
        is_text = name in TEXTS or not text.lstrip("-").isdigit()
        values[name] = text if is_text else int(text)
        if text in ("true", "false"):
            values[name] = text == "true"
    values.setdefault("properties", None)
    members = {
        "code": code, "language": "JAVA", "version": 78, "opaque": 77, "flag": 0, "remark": None,
        "extFields": named(code, values),
    }  # fmt: skip
    return _json_frame(json.dumps(members, separators=(",", ":"), ensure_ascii=False), body)


def like_python(code: int, fields: dict[str, str], body: bytes) -> bytes:
    members = {"code": code, "extFields": named(code, fields), "flag": 0, "opaque": 77}
    return _json_frame(json.dumps(members, indent=1), body)


CLIENTS: list[Spelling] = [
    like_java,
    like_java_in_binary,
    like_go,
    like_cpp,
    like_node,
    like_python,
]


def batch_fields(**changes: str) -> dict[str, str]:
    return {**FIELDS, "batch": "true", "properties": "WAIT\x01true\x02", **changes}


# --- whatever else JSON allows ---------------------------------------------------------------------

_CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXT = st.text(_CHARACTERS, max_size=5)
_PLAIN_TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x01\x02"),
    min_size=1,
    max_size=5,
)
_UNIQUE_ID = st.text("0123456789ABCDEFxyz", min_size=1, max_size=70)


@st.composite
def plain_properties(draw: st.DrawFn) -> str:
    """Properties, most of them plain."""
    others = draw(st.dictionaries(_PLAIN_TEXT, _PLAIN_TEXT, max_size=4))
    wait = draw(st.sampled_from([{}, {"WAIT": "true"}, {"WAIT": "false"}]))
    members = [*others.items(), *wait.items(), ("UNIQ_KEY", draw(_UNIQUE_ID))]
    text = "\x02".join(f"{name}\x01{value}" for name, value in draw(st.permutations(members)))
    return text + draw(st.sampled_from(["", "\x02"]))


_NAMES = [
    "UNIQ_KEY",
    "WAIT",
    "TAGS",
    "DELAY",
    "TRAN_MSG",
    "POP_CK",
    "CLUSTER",
    "TIMER_DELAY_MS",
    "",
]
_VALUES = ["", "A1", "true", "false", "TRUE", "3", "with space", "\x01", "\x00"]


@st.composite
def odd_properties(draw: st.DrawFn) -> str:
    """Properties of any form."""
    names = st.sampled_from(_NAMES) | TEXT
    values = st.sampled_from(_VALUES) | TEXT
    members = draw(st.lists(st.tuples(names, values), max_size=5))
    ends = st.sampled_from(["\x01", "\x02", "\x01", "\x01", ""])
    parts = [f"{name}{draw(ends)}{value}" for name, value in members]
    return "\x02".join(parts) + draw(st.sampled_from(["", "\x02", "\x02\x02"]))


@st.composite
def _quoted(draw: st.DrawFn, text: str) -> str:
    """Write a string in one of the ways that JSON allows."""
    way = draw(st.sampled_from(["raw", "ascii", "escaped", "slashes"]))
    if way == "raw":
        return json.dumps(text, ensure_ascii=False)
    if way == "ascii":
        return json.dumps(text)
    if way == "slashes":
        return json.dumps(text).replace("/", "\\/")
    halves = text.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    upper = draw(st.booleans())
    return '"' + "".join(f"\\u{half.upper() if upper else half}" for half in halves) + '"'


@st.composite
def _valued(draw: st.DrawFn, name: str, text: str) -> str:
    is_bare = name not in TEXTS and (text in ("true", "false") or text.lstrip("-").isdigit())
    if is_bare and draw(st.booleans()):
        return text
    return draw(_quoted(text)) if name in TEXTS else json.dumps(text)


@st.composite
def any_spelling(draw: st.DrawFn, code: int, fields: dict[str, str], body: bytes) -> bytes:
    """Write a send in any way that a client of some language might."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(CLIENTS))(code, fields, body)
    space = draw(st.sampled_from(["", "", " ", "\n\t", "\r\n "]))

    def joined(members: Sequence[tuple[str, str]]) -> str:
        parts = [f"{space}{json.dumps(name)}{space}:{space}{value}" for name, value in members]
        return "{" + f"{space},".join(parts) + space + "}"

    names = dict(zip(fields, named(code, fields), strict=True))
    members = [(names[name], draw(_valued(name, text))) for name, text in fields.items()]
    members += draw(st.lists(st.sampled_from([("o", "null"), ("p", '"\\u00e4ß"'), ("q", "5")])))
    rest = [
        ("extFields", joined(draw(st.permutations(members)))),
        ("opaque", str(draw(st.integers(0, 2**31 - 1)))),
        ("flag", draw(st.sampled_from(["0", "0", "2"]))),
        *draw(
            st.lists(
                st.sampled_from(
                    [
                        ("version", "317"),
                        ("language", '"DOTNET"'),
                        ("remark", "null"),
                        ("remark", '"\\"ä\\ud83d\\ude00"'),
                        ("serializeTypeCurrentRPC", '"JSON"'),
                        ("hashCode", "-12"),
                        ("oneway", "false"),
                    ]
                ),
                unique=True,
            )
        ),
    ]
    return _json_frame(joined([("code", str(code)), *draw(st.permutations(rest))]) + space, body)


@st.composite
def _some_fields(draw: st.DrawFn, fields: dict[str, str]) -> dict[str, str]:
    left_out = draw(st.sets(st.sampled_from([*OPTIONAL[1:]])))
    return {name: text for name, text in fields.items() if name not in left_out}


@st.composite
def plain_sends(draw: st.DrawFn) -> bytes:
    """Frames of plain sends and batches."""
    code = draw(st.sampled_from([10, 310, 320]))
    changes = {
        "queueId": str(draw(st.integers(0, 3))),
        "flag": str(draw(st.integers(-(2**31), 2**31 - 1))),
        "bornTimestamp": str(draw(st.integers(0, 2**50))),
        "producerGroup": draw(TEXT),
    }
    if draw(st.booleans()):
        encoded = draw(st.lists(plain_properties().map(str.encode), min_size=1, max_size=3))
        body = encode_batch([BatchedMessage(5, b"body", each) for each in encoded])
        fields = draw(_some_fields(batch_fields(**changes)))
        return draw(any_spelling(code, {**fields, "batch": "true"}, body))
    changes["properties"] = draw(plain_properties())
    changes["sysFlag"] = draw(st.sampled_from(["0", "0", "1", "257"]))
    fields = draw(_some_fields({**FIELDS, **changes}))
    return draw(any_spelling(code, fields, draw(st.binary(min_size=1, max_size=20))))


_ODD_TEXTS = ["", "x", "+1", "007", "1.0", "-1", "-0", "2147483648", "9" * 19, "TRUE", "null", "4"]


@st.composite
def odd_sends(draw: st.DrawFn) -> bytes:
    """Frames of unusual sends and batches."""
    code = draw(st.sampled_from([10, 310, 320]))
    fields = {**FIELDS, "batch": draw(st.sampled_from(["true", "false", "True", "yes"]))}
    fields["properties"] = draw(
        st.sampled_from([PROPERTIES, "", "WAIT\x01x\x02"]) | odd_properties()
    )
    for name in draw(st.sets(st.sampled_from([*FIELDS]), max_size=2)):
        fields[name] = draw(st.sampled_from(_ODD_TEXTS) | TEXT)
    for name in draw(st.sets(st.sampled_from([*FIELDS]), max_size=1)):
        del fields[name]
    messages = draw(st.lists(odd_properties().map(str.encode), max_size=2))
    batch = encode_batch([*MESSAGES[:1], *(BatchedMessage(0, b"b", each) for each in messages)])
    body = draw(st.sampled_from([batch, b"", b"x", batch[:-1]]))
    return draw(any_spelling(code, fields, body))


@st.composite
def damaged_sends(draw: st.DrawFn) -> bytes:
    """Frames of sends and batches with bytes of their header or body changed, cut or doubled."""
    frame = bytearray(draw(plain_sends()))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(8, len(frame) - 1))
        letter = draw(
            st.sampled_from(b'0123456789-",:{}[]\\u \x00\x01\x02\x80\xc3') | st.integers(0, 255)
        )
        match draw(st.sampled_from(["change", "cut", "add"])):
            case "change":
                frame[at] = letter
            case "cut" if len(frame) > 9:
                del frame[at]
            case _:
                frame.insert(at, letter)
    frame[:4] = (len(frame) - 4).to_bytes(4)
    if draw(st.booleans()):
        # The header's length follows the change, as far as possible.
        header_bytes = int.from_bytes(frame[5:8]) + draw(st.integers(-1, 1))
        frame[5:8] = min(max(header_bytes, 0), len(frame) - 8).to_bytes(3)
    return bytes(frame)
