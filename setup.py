"""Builds the compiled forms of the hot path; everything else stands in pyproject.toml.

They are optional: without a C compiler or zlib's headers the plain forms are used.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

extensions = cythonize(
    [
        Extension("orbitmq.record.native", ["src/orbitmq/record/native.py"], libraries=["z"]),
        Extension(
            "orbitmq.record.batch_records_native",
            ["src/orbitmq/record/batch_records_native.py"],
            libraries=["z"],
        ),
        Extension("orbitmq.store.key_table_native", ["src/orbitmq/store/key_table_native.py"]),
        # The same source as the plain form, under another name.
        Extension("orbitmq.store.appender_native", ["src/orbitmq/store/appender.py"]),
        Extension(
            "orbitmq.protocol.plain_batches_native",
            ["src/orbitmq/protocol/plain_batches_native.py"],
        ),
        Extension(
            "orbitmq.protocol.plain_sends_native", ["src/orbitmq/protocol/plain_sends_native.py"]
        ),
        Extension("orbitmq.spark.messages_native", ["src/orbitmq/spark/messages_native.py"]),
        Extension(
            "orbitmq.spark.rows_native", ["src/orbitmq/spark/rows_native.py"], libraries=["z"]
        ),
    ],
    include_path=["src"],
    build_dir="build/cython",
)
for extension in extensions:
    # cythonize() makes new objects and drops the mark, so it is set on what it returns.
    extension.optional = True

setup(ext_modules=extensions)
