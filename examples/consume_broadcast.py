"""Lets every member of a group get every message; each keeps its offsets in a file."""

import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

from local_cluster import name_server
from orbitmq.client import Message, Producer, PushConsumer, ReceivedMessage

all_here = threading.Semaphore(0)


def member(name: str, namesrv: str, folder: Path) -> PushConsumer:
    """Make a member; its name stays the same from start to start, and so does its file."""

    def reload(message: ReceivedMessage) -> None:
        print(f"{name}: {message.body.decode()}\n", end="")
        all_here.release()

    consumer = PushConsumer(
        "caches",
        on_message=reload,
        namesrv=namesrv,
        instance_name=name,
        message_model="BROADCASTING",
        local_offset_dir=folder,
        consume_from="first",
    )
    consumer.subscribe("price-changes")
    return consumer


with name_server() as namesrv, tempfile.TemporaryDirectory() as folder, ExitStack() as members:
    with Producer("shop", namesrv=namesrv) as producer:
        producer.send(Message("price-changes", "tea costs 4"))
    for name in ("one", "two"):
        members.enter_context(member(name, namesrv, Path(folder)))
    for _ in range(2):
        all_here.acquire(timeout=30)
