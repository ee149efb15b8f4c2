"""The file of a pipeline, as commands take it, and messages to make one of."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.administering import administer
from orbitmq.errors import PackageMissingError

if TYPE_CHECKING:
    from orbitmq.client.aio.admin import Admin
    from orbitmq.client.core.consuming.received_message import ReceivedMessage
    from orbitmq.pipelines.plan import Pipeline

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline file.")]


def read(file: Path) -> Pipeline:
    """Read it; raises PackageMissingError if pipelines cannot run here."""
    for package in ("yaml", "pyspark"):
        if importlib.util.find_spec(package) is None:
            raise PackageMissingError(package, needed_by="orbitmq pipeline", extra="spark")
    from orbitmq.pipelines.file.pipeline_file import read_pipeline

    return read_pipeline(file)


def newest_messages(namesrv: str | None, topic: str, *, count: int) -> list[ReceivedMessage]:
    """The newest messages of a topic, of all queues, about so many."""

    async def read_all(admin: Admin) -> list[ReceivedMessage]:
        return [message async for message in admin.messages.newest(topic, count)]

    return administer(namesrv, read_all, topic=topic)
