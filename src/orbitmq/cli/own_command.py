"""How the user invoked this command, for hints that can be copied."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

_NAME: Final = "orbitmq"


def own_command() -> str:
    """The command as it was started: its name if the shell finds it, else its path."""
    started = Path(sys.argv[0])
    if started.name != _NAME or not started.parent.name:
        return _NAME
    found = shutil.which(_NAME)
    # Shells start scripts by their full path, whatever the user typed.
    if found is not None and Path(found).resolve() == started.resolve():
        return _NAME
    return shlex.quote(sys.argv[0])
