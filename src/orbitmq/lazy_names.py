"""Names of a package whose modules are imported when a name is first used.

    if TYPE_CHECKING:
        from orbitmq.client.sync.producer import Producer

    _names = LazyNames(__name__, {"Producer": "orbitmq.client.sync.producer"})
    __getattr__, __dir__ = _names.find, _names.all

A program pays for what it uses: all clients together take half a second to import, and Spark
starts a process for every query.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any


class LazyNames:
    """The names that a package has beside what is in it already."""

    def __init__(self, package: str, modules: Mapping[str, str]) -> None:
        """Know where names are.

        Args:
            package: who has the names.
            modules: the module that each name comes from, which may have that name itself.
        """
        self._package = package
        self._modules = modules

    def find(self, name: str) -> Any:
        """Import what a name stands for; the package has it from then on."""
        place = self._modules.get(name)
        if place is None:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}")
        module = importlib.import_module(place)
        found = module if place.endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[self._package], name, found)
        return found

    def all(self) -> list[str]:
        """Every name of the package, imported or not."""
        return sorted({*vars(sys.modules[self._package]), *self._modules})
