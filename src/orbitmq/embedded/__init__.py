"""Whole clusters inside one process, for tests, notebooks and experiments."""

from orbitmq.embedded.cluster import Cluster

__all__ = ["Cluster"]
