"""Makes a session the active one in every thread of a program.

Spark looks up a format that Python provides in the session that is active in the current thread of
Java, and each thread of Python has one of those. Only the thread that made the session has it as
active. In others, and after an interrupted query, for which Spark opens a new thread, a write fails
with DATA_SOURCE_NOT_FOUND.

Threads: any. Each connection to Java is one thread there; before its first command, the session is
made active in it.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from py4j import protocol
from py4j.clientserver import JavaClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS: Final = "org.apache.spark.sql.classic.SparkSession"


def activate(spark: SparkSession) -> None:
    """Make writes to topics work in every thread of this program, also after interruptions.

    `session()` calls it; call it once for a session that was made in another way. Spark Connect
    needs it not.
    """
    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is None:
        return
    client = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]  # is connected
    if not isinstance(client, JavaClient):
        # Without pinned threads, threads of Python have none of their own in Java.
        return
    present = client.__dict__.get("_get_connection")
    if isinstance(present, _Connections):
        present.use(java_session)
    else:
        client._get_connection = _Connections(client, java_session)


class _Connections:
    """Connections of a client, in which the session is active."""

    def __init__(self, client: JavaClient, java_session: Any) -> None:
        self._find = client._get_connection
        self.use(java_session)

    def use(self, java_session: Any) -> None:
        """Make another session active from now on."""
        self._command = (
            f"{protocol.CALL_COMMAND_NAME}{protocol.STATIC_PREFIX}{_CLASS}\nsetActiveSession\n"
            f"{protocol.get_command_part(java_session)}{protocol.END_COMMAND_PART}"
        )
        # The object in Java lives as long as this one.
        self._java_session = java_session
        self._done: weakref.WeakSet[Any] = weakref.WeakSet()

    def __call__(self) -> Any:
        """Return the connection of this thread, which Python or Java opened."""
        connection = self._find()
        # Java calls Python with the right session active, such as that of a stream.
        if connection.initiated_from_client and connection not in self._done:
            self._done.add(connection)
            # If the connection is broken, the command that follows opens another.
            with suppress(protocol.Py4JNetworkError):
                connection.send_command(self._command)
        return connection
