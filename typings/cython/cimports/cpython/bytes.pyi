# ruff: noqa: N802  # names as Cython and C have them
from typing import Any

def PyBytes_AS_STRING(text: bytes) -> Any: ...
