"""Lazy names of a package: their modules are imported when a name is first used.

    if TYPE_CHECKING:
        from orbitmq.client.sync.producer import Producer

    _names = LazyNames(__name__, {"Producer": "orbitmq.client.sync.producer"})
    __getattr__, __dir__ = _names.find, _names.all

A program pays only for what it uses: all clients together take half a second to import, and
Spark starts a process for every query.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any


class LazyNames:
    """The names of a package that are imported lazily."""

    def __init__(self, package: str, modules: Mapping[str, str]) -> None:
        """Declare the names.

        Args:
            package: the package that offers the names.
            modules: the module of each name; a name may also stand for the module itself.
        """
        self._package = package
        self._modules = modules

    def find(self, name: str) -> Any:
        """Import what a name stands for, and keep it in the package."""
        path = self._modules.get(name)
        if path is None:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}")
        module = importlib.import_module(path)
        found = module if path.endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[self._package], name, found)
        return found

    def all(self) -> list[str]:
        """List every name of the package, imported or not."""
        return sorted({*vars(sys.modules[self._package]), *self._modules})
