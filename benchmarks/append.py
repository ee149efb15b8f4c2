"""What does writing a record into the mapped log cost, against copying its bytes there?

    python -m benchmarks.append [--rounds N] [--smoke]

Every form writes the same records into the same mapped file, measured as `rounds.py` says.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.messages import HOST, NOW_MS, body_of
from benchmarks.rounds import Form, Measured, measure, options, report
from orbitmq.record import codec, encode
from orbitmq.record.properties import encode_properties

FILE_BYTES: Final = 64 * 1024 * 1024
BODY_BYTES: Final = (128, 1024, 64 * 1024)
SLICE_BYTES: Final = 8 * 1024 * 1024
COPYING: Final = "copying the bytes"

EncodeRecord = Callable[..., int]


def encoders() -> dict[str, EncodeRecord]:
    """The forms there are."""
    forms: dict[str, EncodeRecord] = {"plain": encode.encode_record}
    if codec.IS_COMPILED:
        forms["compiled"] = codec.encode_record
    return forms


@contextmanager
def mapped_file() -> Iterator[memoryview]:
    """A mapped file whose pages are all in memory."""
    with tempfile.TemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, FILE_BYTES)
        with mmap.mmap(file.fileno(), FILE_BYTES) as mapped, memoryview(mapped) as view:
            view[:] = bytes(FILE_BYTES)
            yield view


def append_forms(view: memoryview, body_bytes: int, slice_bytes: int) -> dict[str, Form]:
    """Each form writes as many records as fit a slice, each time at the start of the file."""
    body = body_of(body_bytes)
    properties = encode_properties(
        {"UNIQ_KEY": "7F00000100002A139A5500000000000A", "TAGS": "TagA", "WAIT": "true"}
    )

    rest = (body, properties, 0, 0, NOW_MS, HOST, NOW_MS, HOST, 0, 0)
    size = encode.encode_record(view, 0, b"orders", 1, 0, 0, *rest)
    record = bytes(view[:size])
    count = slice_bytes // size

    def copy() -> int:
        at = 0
        for _ in range(count):
            view[at : at + size] = record
            at += size
        return count

    def form(encode_record: EncodeRecord) -> Form:
        def run() -> int:
            at = 0
            for number in range(count):
                at += encode_record(
                    view,
                    at,
                    b"orders",
                    1,
                    number,
                    at,
                    body,
                    properties,
                    0,
                    0,
                    NOW_MS,
                    HOST,
                    NOW_MS,
                    HOST,
                    0,
                    0,
                )
            return count

        return run

    return {COPYING: copy} | {name: form(function) for name, function in encoders().items()}


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare the forms of writing a record.", rounds=50)
    slice_bytes = SLICE_BYTES // 16 if chosen.smoke else SLICE_BYTES
    measured: list[Measured] = []
    with mapped_file() as view:
        for body_bytes in BODY_BYTES:
            measured += measure(
                f"body of {body_bytes:6} B",
                append_forms(view, body_bytes, slice_bytes),
                baseline=COPYING,
                rounds=1 if chosen.smoke else chosen.rounds,
                seed=chosen.seed,
            )
    report("append", measured, kept=not chosen.smoke)


if __name__ == "__main__":
    main()
