"""The shell of `orbitmq sql`, with history and completion.

Without a terminal it runs the statements of its standard input, and stops at the first that fails.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings

from orbitmq.cli.statements.completion import KnownTopics, SqlCompleter
from orbitmq.errors import CommandError, OrbitError
from orbitmq.pipelines.queries.statements import split, statement_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from prompt_toolkit.key_binding import KeyPressEvent

    from orbitmq.pipelines.queries.statements import Statement

_PROMPT: Final = "orbitmq> "
_MORE: Final = "    ...> "
_HISTORY_BYTES_MAX: Final = 1 << 20
_TEXT_MAX: Final = 4 << 20
_HELP: Final = """\
SELECT … FROM orders;    a query, which a semicolon ends, on as many lines as you like
\\d                       the tables: topics and system tables (SHOW TABLES)
\\d orders                the columns of a table (DESCRIBE orders)
\\?                       this help
\\q, or Ctrl-D            the end; Ctrl-C cancels a query"""


def run_statements(text: str, show: Callable[[Statement], None]) -> None:
    """Run the statements of a text one by one; the last needs no semicolon."""
    if len(text) > _TEXT_MAX:
        raise CommandError(f"{len(text)} characters are too many", hint="run them in parts")
    found, rest = split(text)
    for one in [*found, rest]:
        if one:
            show(statement_of(one))


def run_shell(show: Callable[[Statement], None], namesrv: str | None) -> None:
    """Read statements, and show their answers, until the input ends."""
    if not sys.stdin.isatty():
        run_statements(sys.stdin.read(_TEXT_MAX + 1), show)
        return
    typer.secho("SQL over topics and system tables; \\? for help", dim=True)
    session: PromptSession[str] = PromptSession(
        history=open_history(),
        completer=SqlCompleter(KnownTopics(namesrv)),
        complete_in_thread=True,
        complete_while_typing=False,
        multiline=True,
        prompt_continuation=_MORE,
        key_bindings=_bindings(),
    )
    while True:
        try:
            text = session.prompt(_PROMPT).strip()
            if text.rstrip("; ") in {"\\q", "quit", "exit"}:
                return
            _run(text, show)
        except KeyboardInterrupt:
            # It leaves what is being written, or came as another one was answered.
            continue
        except EOFError:
            return


def _run(text: str, show: Callable[[Statement], None]) -> None:
    """Run what was written; an error or an interrupt ends it, and not the shell."""
    try:
        if text in {"\\?", "help"}:
            typer.echo(_HELP)
        elif text.startswith("\\"):
            show(statement_of(_meaning(text)))
        else:
            run_statements(text, show)
    except KeyboardInterrupt:
        typer.secho("cancelled", fg=typer.colors.YELLOW, err=True)
    except OrbitError as error:
        typer.secho(str(error), fg=typer.colors.RED, err=True)


def _meaning(command: str) -> str:
    """The statement that a command with a backslash stands for."""
    name, _, table = command.rstrip("; ").partition(" ")
    if name not in {"\\d", "\\dt"}:
        raise CommandError(f"there is no command {name}", hint="\\? shows all")
    return f"DESCRIBE {table}" if table.strip() else "SHOW TABLES"


def is_complete(text: str) -> bool:
    """Whether Enter shall run a text, rather than begin another line."""
    text = text.strip()
    if not text or text.startswith("\\") or text in {"help", "quit", "exit"}:
        return True
    found, rest = split(text)
    return bool(found) and not rest


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    def ends() -> bool:
        from prompt_toolkit.application import get_app

        return is_complete(get_app().current_buffer.text)

    @bindings.add("enter", filter=Condition(ends))
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return bindings


def open_history() -> History:
    """What was written before, in a file that only this user can read."""
    path = history_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDONLY, 0o600))
        path.chmod(0o600)
        _shorten(path)
    except OSError as error:
        typer.secho(f"note: {path} keeps no history: {error}", fg=typer.colors.YELLOW, err=True)
        return InMemoryHistory()
    return FileHistory(path)


def history_path() -> Path:
    """Where the history is."""
    named = os.environ.get("XDG_STATE_HOME")
    return (Path(named) if named else Path.home() / ".local/state") / "orbitmq" / "sql_history"


def _shorten(path: Path) -> None:
    """Keep the newer half of a history that is too long."""
    if path.stat().st_size <= _HISTORY_BYTES_MAX:
        return
    kept = path.read_bytes()[-_HISTORY_BYTES_MAX // 2 :]
    # An entry begins with an empty line.
    path.write_bytes(kept[max(kept.find(b"\n\n"), 0) :])
