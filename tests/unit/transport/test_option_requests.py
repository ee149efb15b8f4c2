"""Options shown and changed over the wire."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.errors import FixedOptionError, RequestRefusedError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.settings import Settings, option
from orbitmq.transport.option_requests import OptionRequests
from tests.unit.transport.pairs import Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class SomeConfig:
    """Two options."""

    limit: int = option(5, low=1, high=100, live=True, java="limit", doc="A limit.")
    folder: str = option("a", java="folder", doc="Fixed at start.")


def _requests(settings: Settings, folder: Path) -> OptionRequests:
    return OptionRequests(settings, file=folder / "saved.conf", forbidden=lambda: {"secret"})


async def test_a_change_takes_effect_and_is_saved_to_the_file(tmp_path: Path) -> None:
    settings = Settings.load(SomeConfig)
    options = _requests(settings, tmp_path)
    connection = Parts().new_connection()

    reply = await options.update(connection, Command(code=1, body=b"limit=7\n"))

    assert reply.code == ResponseCode.SUCCESS
    assert settings.of(SomeConfig).limit == 7
    assert (tmp_path / "saved.conf").read_text() == "limit=7\n"
    assert options.show(connection, Command(code=2)).body == b"folder=a\nlimit=7\n"


async def test_changes_are_returned(tmp_path: Path) -> None:
    options = _requests(Settings.load(SomeConfig), tmp_path)

    changed = await options.apply(Parts().new_connection(), Command(code=1, body=b"limit=7"))

    assert changed.names == {"limit"}


async def test_a_forbidden_option_is_no_permission(tmp_path: Path) -> None:
    settings = Settings.load(SomeConfig)

    with pytest.raises(RequestRefusedError, match="secret may not be changed") as refused:
        await _requests(settings, tmp_path).update(
            Parts().new_connection(), Command(code=1, body=b"limit=7\nsecret=x\n")
        )

    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert settings.of(SomeConfig).limit == 5


async def test_an_option_that_is_fixed_at_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FixedOptionError):
        await _requests(Settings.load(SomeConfig), tmp_path).update(
            Parts().new_connection(), Command(code=1, body=b"folder=b\n")
        )

    assert not (tmp_path / "saved.conf").exists()
