"""Values of options as text, and back."""

from __future__ import annotations

import enum
from pathlib import Path

import pytest

from orbitmq.settings.option_kinds import kind_of


class FlushMode(enum.StrEnum):
    SYNC = "SYNC_FLUSH"
    ASYNC = "ASYNC_FLUSH"


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (bool, "true", True),
        (bool, "False", False),
        (int, "9876", 9876),
        (int, "-1", -1),
        (int | None, "7", 7),
        (int | None, "", None),
        (float, "0.75", 0.75),
        (float, "3", 3.0),
        (str, "broker-a", "broker-a"),
        (str, "", ""),
        (Path, "/var/lib/orbitmq", Path("/var/lib/orbitmq")),
        (Path | None, "", None),
        (Path | None, "/etc/key.pem", Path("/etc/key.pem")),
        (tuple[str, ...], "a:1; b:2 ;;", ("a:1", "b:2")),
        (tuple[str, ...], "", ()),
        (FlushMode, "sync_flush", FlushMode.SYNC),
    ],
)
def test_text_becomes_a_value_of_the_annotated_type(
    annotation: object, text: str, value: object
) -> None:
    kind = kind_of(annotation)

    parsed = kind.parse(text)

    assert parsed == value
    assert type(parsed) is type(value)
    assert kind.holds(parsed)
    assert kind.parse(kind.write(parsed)) == value


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (bool, "yes"),
        (bool, "1"),
        (bool, ""),
        (int, "abc"),
        (int, "1_000"),
        (int, "٣"),
        (int, "1.5"),
        (int, ""),
        (int, "9" * 20),
        (int | None, "none"),
        (float, "nan"),
        (float, "inf"),
        (float, "1_0.5"),
        (float, "many"),
        (Path, ""),
        (Path, "a\0b"),
        (FlushMode, "LAZY"),
    ],
)
def test_text_that_is_not_fully_understood_is_refused(annotation: object, text: str) -> None:
    kind = kind_of(annotation)

    with pytest.raises(ValueError):  # noqa: PT011  # the caller words the message
        kind.parse(text)


def test_a_path_may_start_in_the_home_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    assert kind_of(Path).parse("~/namesrv/kv.json") == tmp_path / "namesrv" / "kv.json"


def test_a_boolean_is_not_a_number_and_vice_versa() -> None:
    assert not kind_of(int).holds(True)
    assert not kind_of(bool).holds(1)
    assert not kind_of(float).holds(True)


def test_a_type_without_a_text_form_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot have the type"):
        kind_of(dict[str, str])
    with pytest.raises(TypeError, match="cannot have the type"):
        kind_of(bytes)


def test_an_unhashable_annotation_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot have the type"):
        kind_of([])
