"""The suite itself: ports for servers are nobody else's, in this process and in others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.ports import free_port

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]


def is_given_to_another_process(port: int) -> bool:
    program = f"from tests.interop import ports; print(ports._is_ours({port}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout == "True\n"


def test_ports_of_a_process_are_apart_with_their_neighbours() -> None:
    ports = [free_port(-2, 1) for _ in range(200)]

    taken = [port + step for port in ports for step in (-2, 0, 1)]
    assert len(set(taken)) == len(taken)


def test_a_chosen_port_is_not_given_to_another_process_though_nobody_listens_yet() -> None:
    port = free_port(1)

    assert not is_given_to_another_process(port)
    assert not is_given_to_another_process(port + 1)
