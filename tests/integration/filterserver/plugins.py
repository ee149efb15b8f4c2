"""Installs filter functions, as a package with entry points does, for this process and its children."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SOURCE = """
import ctypes
import json
import os
import sys
import threading

print("a filter that prints does not disturb its filter server")


def every_third(message, context):
    return int(message.body) % 3 == 0


def tagged(message, context):
    return message.tags == "paid" and message.properties.get("region") == "eu"


def of_group(message, context):
    return context.consumer_group.encode() == message.body


def nothing(message, context):
    return False


class CountsItsCalls:
    def __init__(self):
        self.calls = 0

    def __call__(self, message, context):
        self.calls += 1
        return self.calls % 2 == 1


def fails_on_poison(message, context):
    if message.body == b"poison":
        raise ValueError("cannot read this order")
    return True


def reads_json(message, context):
    return json.loads(message.body)["weight_kg"] > 30  # json


class ReadsJson:
    def __call__(self, message, context):
        return json.loads(message.body)["weight_kg"] > 30  # json of a class


def hangs(message, context):
    if message.body == b"hang":
        threading.Event().wait()
    return True


def hangs_in_c(message, context):
    # Holds the interpreter's lock: no Python code of the process runs any more.
    ctypes.PyDLL(None).sleep(600)
    return True


def takes_half_a_limit(message, context):
    threading.Event().wait(0.06)
    return True


def dies(message, context):
    os._exit(3)


def leaves(message, context):
    sys.exit("enough")


def eats_memory(message, context):
    bytearray(4 << 30)
    return True


def forgets_to_return(message, context):
    message.body


async def is_a_coroutine(message, context):
    return True


not_a_function = 3
"""

NAMES = {
    "shop.EveryThird": "every_third",
    "shop.Tagged": "tagged",
    "shop.OfGroup": "of_group",
    "shop.Nothing": "nothing",
    "shop.Counts": "CountsItsCalls",
    "shop.Poison": "fails_on_poison",
    "shop.Json": "reads_json",
    "shop.JsonClass": "ReadsJson",
    "shop.Hangs": "hangs",
    "shop.HangsInC": "hangs_in_c",
    "shop.Slow": "takes_half_a_limit",
    "shop.Dies": "dies",
    "shop.Leaves": "leaves",
    "shop.Eats": "eats_memory",
    "shop.Forgets": "forgets_to_return",
    "shop.Coroutine": "is_a_coroutine",
    "shop.NoFunction": "not_a_function",
    "shop.Missing": "there_is_none",
}


def install(folder: Path, patch: pytest.MonkeyPatch, *, package: str = "shop_filters") -> None:
    """Install the functions above for a test."""
    write_package(folder, package, SOURCE, NAMES)
    patch.syspath_prepend(folder)
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), *_python_path()))))


def write_package(folder: Path, package: str, source: str, names: dict[str, str]) -> None:
    """Write a module and the entry points that a package manager would write for it."""
    information = folder / f"{package}-1.0.dist-info"
    information.mkdir(parents=True)
    (folder / f"{package}.py").write_text(source)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {package}:{attribute}" for name, attribute in names.items()]
    (information / "entry_points.txt").write_text("\n".join(["[orbitmq.filters]", *lines, ""]))


def _python_path() -> list[str]:
    return [os.environ["PYTHONPATH"]] if "PYTHONPATH" in os.environ else []
