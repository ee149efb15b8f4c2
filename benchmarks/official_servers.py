"""Official RocketMQ servers as benchmarks run them: with the JVM flags of their own scripts."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from tests.interop import building
from tests.interop.official import USE_ARCHIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

# What the interop suite asks of a JVM that lives for a minute only.
_SHORT_LIFE_FLAGS: Final = frozenset(
    {
        "-Xms64m",
        "-Xmx256m",
        "-XX:MaxDirectMemorySize=256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
    }
)
# What RocketMQ's own start scripts pass to Java 9 and later, for any server.
SCRIPT_FLAGS: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:-UseLargePages",
)


def with_flags(command: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Take the interop suite's command of a server, and give the JVM other flags."""
    java, *arguments = command
    # Archived classes are nothing that RocketMQ's scripts know of.
    own = [argument for argument in arguments if not argument.startswith(USE_ARCHIVE)]
    kept = [argument for argument in own if argument not in _SHORT_LIFE_FLAGS]
    # A flag that is not taken out would slow the JVM down and flatter us.
    assert len(own) - len(kept) == len(_SHORT_LIFE_FLAGS), arguments
    return [java, *SCRIPT_FLAGS, *flags, *kept]


def official_lines() -> list[str]:
    """The release lines whose jars are built and can be run, the newest first."""
    if shutil.which("java") is None:
        return []
    return [
        line
        for line in sorted(building.LINES, reverse=True)
        if any((building.TARGET_FOLDER / line / "lib-server").glob("rocketmq-namesrv-*.jar"))
    ]
