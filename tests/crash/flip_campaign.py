"""A campaign of flipped bits: rounds of one seed after the other for some time, and its page."""

from __future__ import annotations

import argparse
import datetime
import logging
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from orbitmq import __version__
from orbitmq.clock import SystemClock

# How often which outcome was seen after flipping what.
Outcomes = Counter[tuple[str, str]]


def run_campaign(
    *, program: str, title: str, told: str, flip: Callable[[Path, int, int], Outcomes]
) -> None:
    """Flip for as long as the command line says, and write the page.

    Args:
        program: the module that was started.
        title: of the page.
        told: what the page says about a flip and what was checked.
        flip: runs a number of rounds in a folder with a seed.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("folder", type=Path)
    parser.add_argument("seconds", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + arguments.seconds * 1000
    outcomes: Outcomes = Counter()
    seed = arguments.seed
    while clock.monotonic_ms() < end_ms:
        folder = arguments.folder / str(seed)
        outcomes += flip(folder, seed, 100)
        shutil.rmtree(folder)
        seed += 1
    rows = "\n".join(
        f"| {where} | {outcome} | {count} |" for (where, outcome), count in sorted(outcomes.items())
    )
    today = datetime.datetime.fromtimestamp(clock.now_ms() / 1000, datetime.UTC).date()
    page = f"""# {title}

{outcomes.total()} flips with {seed - arguments.seed} seeds in {arguments.seconds} s, OrbitMQ \
{__version__}, Python {platform.python_version()}, {today.isoformat()}. Written by \
`python -m {program}`.

{told}

| flipped | outcome | times |
|---|---|---|
{rows}
"""
    sys.stdout.write(page)
    if arguments.page:
        arguments.page.write_text(page)
