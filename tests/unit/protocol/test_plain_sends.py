"""Plain sends: what counts as one, and both forms of reading it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.frame import Encoding
from orbitmq.protocol.plain_sends import PlainSend, read_plain_send

_MARKS = b"MSG_REGION\x01r\x02"
_PROPERTIES = "UNIQ_KEY\x017F0001\x02KEYS\x01k1 k2\x02TAGS\x01TagA\x02WAIT\x01true\x02"
SHORT = {
    "a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "3", "f": "1",
    "g": "1700000000000", "h": "-7", "i": _PROPERTIES, "j": "0", "k": "false", "m": "false",
}  # fmt: skip
LONG = {
    "producerGroup": "p", "topic": "orders", "defaultTopic": "TBW102", "queueId": "3",
    "defaultTopicQueueNums": "4", "sysFlag": "1", "bornTimestamp": "1700000000000",
    "flag": "-7", "properties": _PROPERTIES, "reconsumeTimes": "0", "unitMode": "false",
    "maxReconsumeTimes": "0", "batch": "false",
}  # fmt: skip


def frame(
    fields: dict[str, str] = SHORT,
    *,
    code: int = RequestCode.SEND_MESSAGE_V2,
    body: bytes = b"hello",
    encoding: Encoding = Encoding.JSON,
) -> bytes:
    return Command(code=code, fields=fields, body=body, opaque=77, encoding=encoding).encode()


def read(content: bytes) -> PlainSend | None:
    return read_plain_send(b"before" + content, 6, 6 + len(content), _MARKS)


@pytest.mark.parametrize("encoding", list(Encoding))
@pytest.mark.parametrize(("code", "fields"), [(310, SHORT), (10, LONG)])
def test_a_plain_send_is_read_with_all_that_is_stored(
    encoding: Encoding, code: int, fields: dict[str, str]
) -> None:
    send = read(frame(fields, code=code, encoding=encoding))

    assert send == PlainSend(
        topic=b"orders",
        queue_id=3,
        system_flag=1,
        born_ms=1_700_000_000_000,
        flag=-7,
        reconsume_times=0,
        properties=_PROPERTIES.encode() + _MARKS,
        unique_id=b"7F0001",
        waits=True,
        body=b"hello",
        opaque=77,
        command_flag=0,
        encoding=encoding,
    )


def test_a_missing_separator_is_put_before_what_the_broker_adds() -> None:
    send = read(frame({**SHORT, "i": "UNIQ_KEY\x01A1"}))

    assert send is not None
    assert send.properties == b"UNIQ_KEY\x01A1\x02" + _MARKS


def test_a_producer_that_does_not_wait_is_heard() -> None:
    send = read(frame({**SHORT, "i": "WAIT\x01false\x02UNIQ_KEY\x01A1\x02"}))

    assert send is not None
    assert not send.waits


@pytest.mark.parametrize(
    "properties",
    [
        "",
        "TAGS\x01a\x02",
        "UNIQ_KEY\x01with space\x02",
        "UNIQ_KEY\x01A1\x02UNIQ_KEY\x01A2\x02",
        "UNIQ_KEY\x01A1\x02WAIT\x01maybe\x02",
        "UNIQ_KEY\x01A1\x02WAIT\x01true\x02WAIT\x01false\x02",
        *(
            f"UNIQ_KEY\x01A1\x02{name}\x011\x02"
            for name in (
                "DELAY", "TRAN_MSG", "REPLY_TO_CLIENT", "POP_CK", "MSG_REGION", "TRACE_ON",
                "CLUSTER", "TIMER_DELAY_MS", "INNER_NUM", "__RMQ.TRANSIENT.x",
            )
        ),
    ],
)  # fmt: skip
def test_special_properties_make_no_plain_send(properties: str) -> None:
    assert read(frame({**SHORT, "i": properties})) is None


def test_a_name_that_only_looks_special_is_not() -> None:
    properties = "UNIQ_KEY\x01A1\x02MY_DELAY\x011\x02DELAYED\x011\x02x\x01TRAN_MSG\x02"

    assert read(frame({**SHORT, "i": properties})) is not None


@pytest.mark.parametrize(
    "odd",
    [
        frame({**SHORT, "m": "true"}),
        frame({**SHORT, "f": "4"}),
        frame(body=b""),
        frame(code=RequestCode.HEART_BEAT),
        frame({**SHORT, "e": "x"}),
    ],
)
def test_batches_transactions_and_other_requests_are_no_plain_sends(odd: bytes) -> None:
    assert read(odd) is None


def mutations(seed: int, count: int, shapes: Sequence[bytes] = ()) -> list[bytes]:
    """Frames of real shapes, some of them with bytes changed, cut or doubled."""
    chance = random.Random(seed)
    shapes = shapes or [
        frame(),
        frame(LONG, code=10),
        frame({**SHORT, "i": "UNIQ_KEY\x01A1\x02näme\x01值\x02"}),
        frame({**SHORT, "i": 'UNIQ_KEY\x01A1\x02quote\x01"\\/\n\t\x02'}),
        frame({name: text for name, text in SHORT.items() if name not in "jkm"}),
        frame(encoding=Encoding.BINARY),
        frame(LONG, code=10, encoding=Encoding.BINARY),
        frame({**SHORT, "c": "", "i": "UNIQ_KEY\x01A1\x02a\x01\\u0041"}, encoding=Encoding.BINARY),
    ]
    frames: list[bytes] = []
    for _ in range(count):
        content = bytearray(chance.choice(shapes))
        for _ in range(chance.randrange(4)):
            at = chance.randrange(8, len(content))
            match chance.randrange(4):
                case 0:
                    content[at] = chance.randrange(256)
                case 1:
                    content[at] = chance.choice(b'0123456789-",:{}\\u')
                case 2:
                    del content[at]
                case _:
                    content.insert(at, chance.choice(b'0123456789-",:{}\\u\x01\x02'))
        frames.append(bytes(content))
    return frames
