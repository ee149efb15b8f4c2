"""The settings of one process: loaded once, read by parts, changed live, saved.

Order of precedence: flags, environment, file, defaults.

Threads: `load`, `update` and `on_change` belong to one thread; listeners run there. `of`,
`source_of`, `as_properties_text` and `save` may be called from any thread: they read one snapshot,
which an update replaces as a whole.
Crash: `save` leaves the old file or the new one; unsaved changes are lost.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from orbitmq.disk import replace_file
from orbitmq.errors import (
    FixedOptionError,
    ForbiddenOptionError,
    GuardedOptionError,
    PropertiesError,
    SettingsError,
    SettingsProblemsError,
)
from orbitmq.settings.environment import read_environment
from orbitmq.settings.option import HIDDEN, Option, check_limits
from orbitmq.settings.option_table import Assignment, OptionTable, Origin, Reading, Setting
from orbitmq.settings.properties_file import (
    PROPERTIES_BYTES_MAX,
    PropertiesFile,
    encoding_of,
    write_property,
)
from orbitmq.settings.rocketmq_options import ServerRole

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

log = logging.getLogger(__name__)

Config = TypeVar("Config")

_UPDATE: Final = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionChange:
    """One option that changed; its values as text, secrets hidden."""

    name: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What a live update changed, and warnings for its sender."""

    options: tuple[OptionChange, ...]
    warnings: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """The options that have a new value."""
        return frozenset(change.name for change in self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """All values at one moment."""

    configs: dict[type[object], DataclassInstance]
    settings: dict[str, Setting]  # only of options that were set


class Settings:
    """The settings of one process."""

    def __init__(self, table: OptionTable, snapshot: _Snapshot, warnings: list[str]) -> None:
        self.warnings = warnings
        self._table = table
        self._snapshot = snapshot
        self._set_at_start = snapshot.settings
        self._listeners: list[Callable[[Changed], None]] = []
        self._saving = threading.Lock()

    @classmethod
    def load(
        cls,
        *configs: type[DataclassInstance] | DataclassInstance,
        file: Path | None = None,
        environment: Mapping[str, str] | None = None,
        flags: Mapping[str, str] | None = None,
        role: ServerRole | None = None,
        leave_alone: Iterable[str] = (),
    ) -> Settings:
        """Read all sources; an error lists every problem found in them.

        Args:
            configs: the config classes; instead of a class, a config with the defaults of this
                role.
            file: a properties file.
            environment: usually `os.environ`.
            flags: texts by option name or field name.
            role: what this process is, to distinguish its options from those of other roles.
            leave_alone: options and ORBITMQ_ variables of others, which cause no warning.
        """
        defaults = [config() if isinstance(config, type) else config for config in configs]
        for config in defaults:
            check_limits(config)
        table = OptionTable([type(config) for config in defaults], role=role)
        content = _read(file) if file is not None else b""
        from_file, warnings, problems = _assignments(content, file)
        from_environment, unknown_variables = read_environment(
            environment or {}, table, leave_alone=leave_alone
        )
        from_flags = [
            Assignment(
                name=table.name_of(name),
                text=text,
                origin=Origin.FLAG,
                source="flag",
                where=f"flag {name}",
            )
            for name, text in (flags or {}).items()
        ]
        reading = table.read([*from_file, *from_environment, *from_flags])
        _raise_if_any([*problems, *reading.problems])
        snapshot = _with_settings(
            table,
            _Snapshot(
                configs={type(config): config for config in defaults},
                settings={},
            ),
            reading.settings,
        )
        return cls(table, snapshot, [*warnings, *reading.warnings, *unknown_variables])

    def with_values(self, values: Mapping[str, str], source: str) -> Settings:
        """Return settings that differ in some options, live or not; nobody listens to them yet."""
        reading = self._table.read(
            Assignment(
                name=name, text=text, origin=Origin.FLAG, source=source, where=f"{source} {name}"
            )
            for name, text in values.items()
        )
        _raise_if_any(reading.problems)
        changed = _with_settings(self._table, self._snapshot, reading.settings)
        return Settings(self._table, changed, [])

    def of(self, config_class: type[Config]) -> Config:
        """Return the current config of one class."""
        config = self._snapshot.configs[config_class]
        assert isinstance(config, config_class)
        return config

    def source_of(self, name: str) -> str:
        """Return where the value of an option came from."""
        known = self._table.name_of(name)
        if known not in self._table.options:
            raise self._table.unknown(name, where="settings")
        setting = self._snapshot.settings.get(known)
        return "default" if setting is None else setting.source

    def as_properties_text(self) -> str:
        """Write all options and their values as properties, sorted, secrets hidden."""
        configs = self._snapshot.configs
        return "".join(
            write_property(name, option.show(_value(configs, option))) + "\n"
            for name, option in sorted(self._table.options.items())
        )

    def on_change(self, listener: Callable[[Changed], None]) -> None:
        """Call `listener` after each update that changed something."""
        self._listeners.append(listener)

    def update(
        self,
        changes: str | bytes | Mapping[str, str],
        *,
        forbidden: Collection[str] = (),
        allow_guarded: bool = True,
    ) -> Changed:
        """Change live options: all of them, or none if there is any problem.

        Args:
            changes: properties text, or texts by option name.
            forbidden: the black list of the server; an update that names one of these is refused.
            allow_guarded: whether options may change that could do harm, such as delete messages.
        """
        assignments, warnings, problems = _assignments(changes, None)
        blocked = sorted({found.name for found in assignments if found.name in forbidden})
        if blocked:
            raise ForbiddenOptionError(blocked)
        reading = self._table.read(a for a in assignments if not self._is_hidden_secret(a))
        settings, fixed = self._differing(reading)
        _raise_if_any([*problems, *reading.problems, *fixed])
        if not allow_guarded:
            self._refuse_guarded(settings)
        before = self._snapshot
        after = _with_settings(self._table, before, settings)
        options = tuple(
            OptionChange(
                name=name,
                old=self._table.options[name].show(
                    _value(before.configs, self._table.options[name])
                ),
                new=self._table.options[name].show(setting.value),
            )
            for name, setting in settings.items()
        )
        warnings += reading.warnings
        warnings += [
            f"{name} is set by {start.source} at start, which takes precedence over the file"
            for name in settings
            if (start := self._set_at_start.get(name)) is not None
            and start.origin is not Origin.FILE
        ]
        changed = Changed(options=options, warnings=tuple(warnings))
        if options:
            self._snapshot = after
            self._notify(changed)
        return changed

    def save(self, path: Path) -> None:
        """Write the changes of live updates to a properties file, keeping its other lines.

        Blocks on the disk.
        """
        with self._saving:
            updated = {
                name: self._table.options[name].kind.write(setting.value)
                for name, setting in self._snapshot.settings.items()
                if setting.origin is Origin.UPDATE
            }
            if not updated:
                return
            previous = _read(path) if path.exists() else b""
            parsed = PropertiesFile.parse(previous, name=str(path))
            # The rewritten file would be as unreadable as this one; leave it alone.
            _raise_if_any(parsed.problems)
            content = parsed.with_values(updated).encode(encoding_of(previous))
            try:
                replace_file(path, content)
            except OSError as error:
                raise PropertiesError(
                    str(path),
                    f"cannot be written: {error.strerror}",
                    hint="the new values are in use, but a restart would lose them",
                ) from error

    def _differing(self, reading: Reading) -> tuple[dict[str, Setting], list[SettingsError]]:
        """Return the settings that change something, and problems for those that are fixed."""
        settings: dict[str, Setting] = {}
        fixed: list[SettingsError] = []
        for name, setting in reading.settings.items():
            option = self._table.options[name]
            current = _value(self._snapshot.configs, option)
            if setting.value == current:
                continue
            if option.live:
                settings[name] = setting
            else:
                fixed.append(
                    FixedOptionError(
                        name,
                        where=setting.source,
                        current=option.show(current),
                        asked=option.show(setting.value),
                    )
                )
        return settings, fixed

    def _refuse_guarded(self, settings: Mapping[str, Setting]) -> None:
        guarded = {
            name: option.guarded
            for name in settings
            if (option := self._table.options[name]).guarded
        }
        if guarded:
            raise GuardedOptionError(guarded)

    def _is_hidden_secret(self, assignment: Assignment) -> bool:
        """Whether a secret has the hidden form, as in an edited copy of the shown text."""
        option = self._table.options.get(assignment.name)
        return option is not None and option.secret and assignment.text == HIDDEN

    def _notify(self, changed: Changed) -> None:
        for listener in self._listeners:
            try:
                listener(changed)
            except Exception:
                # The change is in effect already; other listeners must still hear of it.
                log.exception("settings listener failed changed=%s", sorted(changed.names))


def _value(configs: Mapping[type[object], object], option: Option) -> object:
    value: object = getattr(configs[option.owner], option.field)
    return value


def _with_settings(
    table: OptionTable, snapshot: _Snapshot, settings: dict[str, Setting]
) -> _Snapshot:
    """Return the snapshot with some settings applied; configs check their own consistency."""
    by_class: dict[type[object], dict[str, object]] = {}
    for name, setting in settings.items():
        option = table.options[name]
        by_class.setdefault(option.owner, {})[option.field] = setting.value
    configs = dict(snapshot.configs)
    problems: list[SettingsError] = []
    for config_class, values in by_class.items():
        try:
            configs[config_class] = dataclasses.replace(configs[config_class], **values)
        except SettingsError as problem:
            problems.append(problem)
    _raise_if_any(problems)
    return _Snapshot(
        configs=configs,
        settings=snapshot.settings | settings,
    )


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(PROPERTIES_BYTES_MAX + 1)
    except OSError as error:
        raise PropertiesError(
            str(file),
            f"cannot be read: {error.strerror}",
            hint="check the path and its permissions",
        ) from error


def _assignments(
    content: str | bytes | Mapping[str, str], file: Path | None
) -> tuple[list[Assignment], list[str], list[SettingsError]]:
    """Turn properties into assignments, warnings and problems; without a file, of an update."""
    if isinstance(content, Mapping):
        assignments = [
            Assignment(name=name, text=text, origin=Origin.UPDATE, source=_UPDATE, where=_UPDATE)
            for name, text in content.items()
        ]
        return assignments, [], []
    place = str(file) if file is not None else _UPDATE
    source = file.name if file is not None else _UPDATE
    parsed = PropertiesFile.parse(content, name=place)
    last: dict[str, Assignment] = {}
    warnings: list[str] = []
    for found in parsed.properties:
        where = f"{place}:{found.line}"
        if found.name in last:
            warnings.append(f"{where}: {found.name} is set again; the last value counts")
        last[found.name] = Assignment(
            name=found.name,
            text=found.value,
            origin=Origin.UPDATE if file is None else Origin.FILE,
            source=f"{source} line {found.line}",
            where=where,
        )
    return list(last.values()), warnings, list(parsed.problems)


def _raise_if_any(problems: Iterable[SettingsError]) -> None:
    several = list(problems)
    if len(several) == 1:
        raise several[0]
    if several:
        raise SettingsProblemsError(several)
