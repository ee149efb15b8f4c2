"""What a form of a command of mqadmin becomes."""

from __future__ import annotations

from orbitmq.cli.mqadmin.alias import Alias

FORM = Alias(
    ours="thing do",
    arguments=("-t", "-k=-v"),
    options={"-c": "--count", "-x": ""},
    choices={"-o": ("--ordered", "--no-ordered")},
    switches={"-a": "--all", "-b": ""},
    always=("--yes",),
)


def test_flags_become_arguments_and_options() -> None:
    given = {"-t": "T", "-k": "name", "-v": "-1", "-c": "5", "-x": "y", "-o": "false", "-a": ""}

    assert FORM.matches(given)
    assert FORM.translate(given, ["--json"]) == [
        *("thing", "do", "--yes", "--count", "5", "--no-ordered", "--all", "--json"),
        *("--", "T", "name=-1"),
    ]


def test_a_form_matches_only_with_all_it_needs_and_nothing_else() -> None:
    assert not FORM.matches({"-t": "T", "-k": "name"})
    assert not FORM.matches({"-t": "T", "-k": "name", "-v": "1", "-z": ""})


def test_a_form_may_ask_for_a_value() -> None:
    form = Alias(ours="kv put", when={"-m": "put"}, first=("NAMESPACE",), arguments=("-t",))

    assert form.matches({"-m": "put", "-t": "T"})
    assert not form.matches({"-m": "get", "-t": "T"})
    assert form.translate({"-m": "put", "-t": "T"}, []) == ["kv", "put", "--", "NAMESPACE", "T"]


def test_the_last_argument_may_hold_several() -> None:
    form = Alias(ours="thing show", arguments=("-t", "-i"), lists=True)

    assert form.translate({"-t": "T", "-i": "a,b"}, [])[-3:] == ["T", "a", "b"]
