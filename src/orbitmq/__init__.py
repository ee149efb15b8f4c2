"""OrbitMQ: a RocketMQ-compatible message queue whose topics are Spark tables."""

from orbitmq.version import __version__

__all__ = ["__version__"]
