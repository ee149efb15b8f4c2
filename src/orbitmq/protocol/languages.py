"""The languages that a peer may report as its own."""

from enum import IntEnum


class Language(IntEnum):
    """Numbers of the binary header; JSON headers carry the name."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


def language_named(name: str) -> Language:
    """Find a language by name, ignoring letter case; an unknown one is OTHER."""
    language = _BY_NAME.get(name)
    return _BY_NAME.get(name.upper(), Language.OTHER) if language is None else language


def language_numbered(number: int) -> Language:
    """Find a language by number; an unknown one is OTHER."""
    return _BY_NUMBER.get(number, Language.OTHER)


_BY_NAME = dict(Language.__members__)
_BY_NUMBER = {language.value: language for language in Language}
