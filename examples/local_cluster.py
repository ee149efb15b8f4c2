"""What all examples share: a cluster to talk to, theirs or one that `--namesrv` names."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from orbitmq.embedded import Cluster


@contextmanager
def name_server() -> Iterator[str]:
    """Give the address of a name server: the one named by `--namesrv`, or one of our own.

    The servers of our own run in a thread of this process, in a temporary folder, and end with it.
    """
    # The docstring of the example is its help.
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--namesrv", help="a running name server; without it, one is started")
    given: str | None = parser.parse_args().namesrv
    if given:
        yield given
    else:
        with Cluster() as cluster:
            yield cluster.namesrv
