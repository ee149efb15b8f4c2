"""One form of a command of mqadmin, and the command of ours that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Which command of ours does the work of one of mqadmin's."""

    ours: str
    # Flags whose values become our arguments, in this order; "-k=-v" makes one argument of two.
    arguments: tuple[str, ...] = ()
    # Whether the last of them holds several, separated by commas.
    lists: bool = False
    # Flags with a value, by the name of our option; empty where it changes nothing here.
    options: dict[str, str] = field(default_factory=dict)
    # Flags with true or false: our options for each.
    choices: dict[str, tuple[str, str]] = field(default_factory=dict)
    # Flags without a value, by the name of our option; empty where it changes nothing here.
    switches: dict[str, str] = field(default_factory=dict)
    # Flags that must have this value for the form to be meant.
    when: dict[str, str] = field(default_factory=dict)
    # Arguments of ours that stand before the others.
    first: tuple[str, ...] = ()
    # Options of ours that go with it, unless a flag says otherwise.
    always: tuple[str, ...] = ()

    @property
    def needed(self) -> list[str]:
        """The flags without which it does not work."""
        arguments = [flag for argument in self.arguments for flag in argument.split("=")]
        return [*arguments, *self.when]

    @property
    def valued(self) -> set[str]:
        """The flags that have a value."""
        return {*self.needed, *self.options, *self.choices}

    def is_meant(self, given: dict[str, str]) -> bool:
        """Whether these flags are all known to it, and all that it needs."""
        return (
            given.keys() <= self.valued | self.switches.keys()
            and all(flag in given for flag in self.needed)
            and all(given[flag] == value for flag, value in self.when.items())
        )

    def translated(self, given: dict[str, str], others: list[str]) -> list[str]:
        """The command line of ours."""
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
        # Behind -- nothing is an option, whatever a value begins with.
        rest = ["--", *self.first, *arguments] if self.first or arguments else []
        return [*self.ours.split(), *filter(None, options), *others, *rest]
