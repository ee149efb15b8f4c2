"""Commands run as a user types them, against a cluster in the same process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from orbitmq.cli.main import check_command, command_for, exit_code_of
from orbitmq.cli.mqadmin.names import as_our_command
from orbitmq.embedded import Cluster
from orbitmq.errors import OrbitError

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command against the cluster; what it prints is in the result."""
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    monkeypatch.setenv("ORBITMQ_CONFIG", str(tmp_path / "orbitmq.toml"))
    command = command_for([])

    def run(*words: str, code: int = 0, typed: str | None = None) -> Result:
        ours = as_our_command(list(words))
        check_command(ours)
        result = CliRunner().invoke(command, ours, input=typed)
        if isinstance(result.exception, OrbitError):
            assert exit_code_of(result.exception) == code, result.exception
        else:
            assert result.exit_code == code, result.output or result.exception
        return result

    return run
