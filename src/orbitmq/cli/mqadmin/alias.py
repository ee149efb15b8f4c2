"""One form of an mqadmin command, and its translation into ours."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Translates one form of an mqadmin command into a command of ours."""

    ours: str
    # Flags whose values become our arguments, in this order; "-k=-v" makes one argument of two.
    arguments: tuple[str, ...] = ()
    # Whether the last of them is a list, separated by commas.
    lists: bool = False
    # Flags with a value, and our option for each; empty if it has no effect here.
    options: dict[str, str] = field(default_factory=dict)
    # Flags with true or false, and our options for both.
    choices: dict[str, tuple[str, str]] = field(default_factory=dict)
    # Flags without a value, and our option for each; empty if it has no effect here.
    switches: dict[str, str] = field(default_factory=dict)
    # Flags that must have this value for the form to match.
    when: dict[str, str] = field(default_factory=dict)
    # Fixed arguments of ours, before the others.
    first: tuple[str, ...] = ()
    # Options of ours that are always added; flags come after them and override them.
    always: tuple[str, ...] = ()

    @property
    def required(self) -> list[str]:
        """The required flags."""
        arguments = [flag for argument in self.arguments for flag in argument.split("=")]
        return [*arguments, *self.when]

    @property
    def valued(self) -> set[str]:
        """The flags that take a value."""
        return {*self.required, *self.options, *self.choices}

    def matches(self, given: dict[str, str]) -> bool:
        """Whether it knows all these flags, and they include all required ones."""
        return (
            given.keys() <= self.valued | self.switches.keys()
            and all(flag in given for flag in self.required)
            and all(given[flag] == value for flag, value in self.when.items())
        )

    def translate(self, given: dict[str, str], others: list[str]) -> list[str]:
        """Our command line."""
        options = list(self.always)
        for flag, value in given.items():
            if option := self.options.get(flag):
                options += [option, value]
            elif flag in self.choices:
                yes, no = self.choices[flag]
                options.append(yes if value == "true" else no)
            elif flag in self.switches:
                options.append(self.switches[flag])
        arguments = [
            "=".join(given[flag] for flag in argument.split("=")) for argument in self.arguments
        ]
        if self.lists:
            arguments[-1:] = arguments[-1].split(",")
        # After -- nothing is an option, whatever it starts with.
        rest = ["--", *self.first, *arguments] if self.first or arguments else []
        return [*self.ours.split(), *filter(None, options), *others, *rest]
