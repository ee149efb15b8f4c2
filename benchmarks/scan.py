"""What does walking over the log cost, against a checksum of it and against reading it?

    python -m benchmarks.scan [--rounds N] [--smoke]

A walk is what feeds queues and index (keys, no checksums) and what recovery does (checksums).
Measured as `rounds.py` says.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from benchmarks.messages import HOST, NOW_MS, body_of, properties_of
from benchmarks.rounds import Form, Measured, measure, options, report
from orbitmq.record import codec, scan

LOG_BYTES: Final = 64 * 1024 * 1024
BODY_BYTES: Final = (128, 1024)
PIECE_BYTES: Final = 1024 * 1024
QUEUES: Final = 16
CHECKSUM: Final = "zlib.crc32 over all bytes"
READING: Final = "reading the file"

WalkForm = Callable[..., scan.Walk]


def make_log(
    log_bytes: int, body: bytes, *, system_flag: int = 0, host: bytes = HOST
) -> tuple[bytearray, int, int]:
    """Records of 16 queues in turn: the bytes, where the last record ends, and how many there are."""
    log = bytearray(log_bytes)
    at = number = 0
    while at + len(body) + 1024 < log_bytes:
        properties = properties_of(number)
        queue_id, queue_offset = number % QUEUES, number // QUEUES
        at += codec.encode_record(
            *(log, at, b"orders", queue_id, queue_offset, at, body, properties),
            *(0, system_flag, NOW_MS, host, NOW_MS, host, 0, 0),
        )
        number += 1
    return log, at, number


def scan_forms(log: bytearray, end: int, records: int, descriptor: int) -> dict[str, Form]:
    """Each form goes over the whole log once."""

    def checksum() -> int:
        zlib.crc32(memoryview(log)[:end])
        return records

    def read() -> int:
        piece = bytearray(PIECE_BYTES)
        for at in range(0, end, PIECE_BYTES):
            os.preadv(descriptor, [piece], at)
        return records

    def walk(form: WalkForm, *, check_body: bool, with_keys: bool) -> int:
        found = form(log, 0, end, 0, check_body=check_body, delay_levels_ms=(), with_keys=with_keys)
        assert found.records == records
        return records

    forms: dict[str, Form] = {CHECKSUM: checksum, READING: read}
    walks: dict[str, WalkForm] = {"plain": scan.walk}
    if codec.IS_COMPILED:
        walks["compiled"] = codec.walk
    for name, form in walks.items():
        forms[f"{name}: queues"] = partial(walk, form, check_body=False, with_keys=False)
        forms[f"{name}: queues, keys"] = partial(walk, form, check_body=False, with_keys=True)
        forms[f"{name}: queues, CRC"] = partial(walk, form, check_body=True, with_keys=False)
    return forms


def main() -> None:
    """Measure, print the table and keep the results."""
    chosen = options("Compare the forms of walking over the log.", rounds=7)
    measured: list[Measured] = []
    for body_bytes in BODY_BYTES:
        log_bytes = LOG_BYTES // 64 if chosen.smoke else LOG_BYTES
        log, end, records = make_log(log_bytes, body_of(body_bytes))
        with tempfile.TemporaryFile() as file:
            file.write(log)
            file.flush()
            measured += measure(
                f"bodies of {body_bytes:4} B",
                scan_forms(log, end, records, file.fileno()),
                baseline=CHECKSUM,
                rounds=1 if chosen.smoke else chosen.rounds,
                seed=chosen.seed,
            )
    report("scan", measured, kept=not chosen.smoke)


if __name__ == "__main__":
    main()
