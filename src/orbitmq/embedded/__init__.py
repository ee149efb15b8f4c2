"""Whole clusters inside a process: for tests, notebooks and trying things out."""

from orbitmq.embedded.cluster import Cluster

__all__ = ["Cluster"]
