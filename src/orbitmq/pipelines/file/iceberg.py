"""A sink `iceberg: CATALOG.NAMESPACE.TABLE`."""

from __future__ import annotations

import importlib.util
from typing import Final

from orbitmq.errors import PackageMissingError
from orbitmq.pipelines.file.fields import FieldReader
from orbitmq.pipelines.plan import IcebergSink

_EXAMPLE: Final = "lake.shop.orders"
# A catalog, a namespace and a table, at least.
_NAMES_MIN: Final = 3


def read_iceberg(name: str, reads: str, reader: FieldReader, *, adds_columns: bool) -> IcebergSink:
    """Read the fields of a sink."""
    if importlib.util.find_spec("pyiceberg") is None:
        raise PackageMissingError("pyiceberg", needed_by=reader.what, extra="spark,iceberg")
    table = reader.required("iceberg", _EXAMPLE)
    names = table.split(".")
    if table and (len(names) < _NAMES_MIN or not all(names)):
        problem = f"an Iceberg table cannot be {table!r}"
        reader.add("iceberg", problem, hint=f"as in iceberg: {_EXAMPLE}")
    catalog, *rest = names
    return IcebergSink(
        name=name,
        reads=reads,
        catalog=catalog,
        identifier=".".join(rest),
        properties={key: text.value for key, text in reader.mapping("catalog").items()},
        adds_columns=adds_columns,
    )
