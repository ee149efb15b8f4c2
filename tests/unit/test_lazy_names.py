"""Names that are imported when they are first used."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from orbitmq.lazy_names import LazyNames
from tests.unit.fresh_process import printed_by

_PACKAGES = ["orbitmq.client", "orbitmq.client.aio", "orbitmq.settings", "orbitmq.spark"]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("some_package")
    monkeypatch.setitem(sys.modules, "some_package", made)
    return made


def test_a_name_is_found_in_its_module(package: ModuleType) -> None:
    names = LazyNames("some_package", {"OrderedDict": "collections"})

    found = names.find("OrderedDict")

    assert found is importlib.import_module("collections").OrderedDict
    assert package.OrderedDict is found


def test_a_name_may_be_that_of_a_module(package: ModuleType) -> None:
    names = LazyNames("some_package", {"abc": "collections.abc"})

    assert names.find("abc") is importlib.import_module("collections.abc")
    assert package.abc is importlib.import_module("collections.abc")


def test_an_unknown_name_is_refused_with_pythons_text(package: ModuleType) -> None:
    names = LazyNames(package.__name__, {"OrderedDict": "collections"})

    with pytest.raises(AttributeError, match="module 'some_package' has no attribute 'Ordered'"):
        names.find("Ordered")


def test_names_are_listed_before_they_are_imported(package: ModuleType) -> None:
    vars(package)["there"] = 1
    names = LazyNames("some_package", {"OrderedDict": "collections"})

    assert {"OrderedDict", "there"} <= set(names.all())


@pytest.mark.parametrize("package_name", _PACKAGES)
def test_a_package_has_every_name_that_it_promises(package_name: str) -> None:
    package = importlib.import_module(package_name)

    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)


def test_a_client_is_imported_without_the_others() -> None:
    program = "import sys; from orbitmq.client import Producer; print(*sys.modules)"

    imported = printed_by(program).split()

    assert "orbitmq.client.sync.producer" in imported
    assert "orbitmq.client.sync.admin" not in imported
    assert "orbitmq.client.aio.push.push_consumer" not in imported


def test_the_asyncio_clients_are_found_from_the_package_alone() -> None:
    program = "import orbitmq.client; print(orbitmq.client.aio.Producer.__module__)"

    assert printed_by(program) == "orbitmq.client.aio.sending.producer"


def test_an_unknown_client_is_an_import_error() -> None:
    program = "try:\n    from orbitmq.client import Sender\nexcept ImportError as error:\n    print(error)"

    assert printed_by(program).startswith("cannot import name 'Sender'")
