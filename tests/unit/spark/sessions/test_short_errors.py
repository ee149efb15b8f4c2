"""Errors of sources, as Spark's own workers write them."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
from pyspark.util import handle_worker_exception

from orbitmq.errors import SettingsError
from orbitmq.spark.sessions.short_errors import short_errors


@short_errors
class Source:
    """Fails in every way."""

    def fail(self) -> None:
        raise SettingsError("no such option", hint="leave it out")

    def fail_later(self) -> Iterator[int]:
        yield 1
        self.fail()

    def break_down(self) -> None:
        raise ZeroDivisionError

    def answer(self, number: int) -> int:
        return number


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that Spark started."""
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")


def shown(error: BaseException) -> str:
    written = io.BytesIO()
    handle_worker_exception(error, written)
    return written.getvalue()[8:].decode()


@pytest.mark.usefixtures("worker")
def test_our_errors_are_one_line() -> None:
    for failing in (Source().fail, lambda: list(Source().fail_later())):
        with pytest.raises(SettingsError) as caught:
            failing()

        assert shown(caught.value) == (
            "orbitmq.errors.SettingsError: no such option (leave it out)\n"
        )


@pytest.mark.usefixtures("worker")
def test_other_errors_keep_their_traceback() -> None:
    text = ""
    try:
        Source().break_down()
    except ZeroDivisionError as error:
        text = shown(error)

    assert "in break_down" in text


def test_results_pass() -> None:
    assert Source().answer(7) == 7
    assert next(Source().fail_later()) == 1
