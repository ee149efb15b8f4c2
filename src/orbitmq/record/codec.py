"""Writing, checking and walking over records: compiled if possible, else plain.

The plain forms run where nothing is compiled, and with ORBITMQ_PURE=1 in the environment. Both
behave the same.
"""

from __future__ import annotations

import os
from typing import Final

from orbitmq.record import bodiless, encode, scan

try:
    if os.environ.get("ORBITMQ_PURE") == "1":
        raise ImportError("ORBITMQ_PURE asks for plain forms")  # noqa: TRY301  # one way to the plain
    from orbitmq.record.compiled import batch_records_cython, bodiless_cython, codec_cython
except ImportError:
    encode_record = encode.encode_record
    encode_batch_records = encode.encode_batch_records
    is_sound = scan.is_sound
    sound_records = scan.sound_records
    walk = scan.walk
    whole_records = scan.whole_records
    without_bodies = bodiless.without_bodies
    is_compiled = False
else:
    encode_record = codec_cython.encode_record
    encode_batch_records = batch_records_cython.encode_batch_records
    is_sound = codec_cython.is_sound
    sound_records = codec_cython.sound_records
    walk = codec_cython.walk
    whole_records = codec_cython.whole_records
    without_bodies = bodiless_cython.without_bodies
    is_compiled = True

IS_COMPILED: Final = is_compiled
