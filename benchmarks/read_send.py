"""What does reading a send cost, by how clients write its header, beside the ordinary form?

    python -m benchmarks.read_send [--rounds N] [--smoke]

The ordinary form reads the frame as a command and its fields as a typed header; the compiled one
reads both at once, and looks at the properties, too. Measured as `rounds.py` says.
"""

from __future__ import annotations

from typing import Final

from benchmarks.messages import body_of
from benchmarks.rounds import Form, Measured, measure, options, report
from orbitmq.protocol import fast_forms
from orbitmq.protocol.command import decode_command
from orbitmq.protocol.requests.sending import SendMessageShort
from tests.unit.protocol.send_spellings import (
    FIELDS,
    Spelling,
    like_cpp,
    like_go,
    like_java,
    like_java_in_binary,
    like_node,
)

ORDINARY: Final = "ordinary"
CODE: Final = 310
FRAMES: Final = 20_000
BROKER_PROPERTIES: Final = (
    b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
)
ASCII: Final = (
    "UNIQ_KEY\x017F00000100002A139A5500000000000A\x02KEYS\x01order-1234567\x02"
    "TAGS\x01TagA\x02WAIT\x01true\x02"
)
BEYOND_ASCII: Final = ASCII + "名前\x01値のテスト\x02"
CLIENTS: Final[dict[str, Spelling]] = {
    "Java": like_java,
    "Java, binary": like_java_in_binary,
    "Go": like_go,
    "C++": like_cpp,
    "Node": like_node,
}


def read_forms(frame: bytes, count: int) -> dict[str, Form]:
    """Each form reads the same frame, again and again."""
    end = len(frame)

    def ordinary() -> int:
        for _ in range(count):
            SendMessageShort.decode(decode_command(frame, 0, end).fields)
        return count

    forms: dict[str, Form] = {ORDINARY: ordinary}
    read_send = fast_forms.read_send
    if read_send is not None:

        def compiled() -> int:
            for _ in range(count):
                assert read_send(frame, 0, end, BROKER_PROPERTIES) is not None
            return count

        forms["compiled"] = compiled
    return forms


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare the forms of reading a send.", rounds=30)
    measured: list[Measured] = []
    for kind, properties in (("ASCII", ASCII), ("beyond ASCII", BEYOND_ASCII)):
        for name, written in CLIENTS.items():
            frame = written(CODE, {**FIELDS, "properties": properties}, body_of(128))
            measured += measure(
                f"{name}, {kind}",
                read_forms(frame, FRAMES // 100 if chosen.smoke else FRAMES),
                baseline=ORDINARY,
                rounds=1 if chosen.smoke else chosen.rounds,
                seed=chosen.seed,
            )
    report("read_send", measured, kept=not chosen.smoke)


if __name__ == "__main__":
    main()
