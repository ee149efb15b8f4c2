# ruff: noqa: N801, N802  # names as Cython and C have them
from typing import Any

class Py_buffer:
    buf: Any
    len: int

PyBUF_SIMPLE: int
PyBUF_WRITABLE: int

def PyObject_GetBuffer(buffer: object, view: object, flags: int) -> int: ...
def PyBuffer_Release(view: object) -> None: ...
