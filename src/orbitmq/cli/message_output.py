"""How commands show messages and the results of sends."""

from __future__ import annotations

import codecs
from typing import Final

import typer

from orbitmq.cli.output import escaped, show_json_line, time_text
from orbitmq.client.core.consuming.received_message import ReceivedMessage
from orbitmq.client.core.sending.send_results import SendResult

_SHOWN_BYTES_MAX: Final = 4096


def print_sent(result: SendResult, *, as_json: bool, copy_of: str = "") -> None:
    """Print where a message was stored, and of which one it is a copy."""
    row: dict[str, object] = {
        "status": result.status.name,
        **({"copy_of": copy_of} if copy_of else {}),
        "message_id": result.message_id,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
        **({"recall_handle": result.recall_handle} if result.recall_handle else {}),
    }
    if as_json:
        show_json_line(row)
    else:
        typer.echo("  ".join(f"{name}={value}" for name, value in row.items()))


def message_row(message: ReceivedMessage) -> dict[str, object]:
    """Describe a message in full."""
    return {
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "topic": message.topic,
        "tags": message.tags,
        "keys": list(message.keys),
        "broker": message.queue.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "stored": time_text(message.store_ms),
        "born": time_text(message.born_ms),
        "born_host": ":".join(map(str, message.born_host)),
        "physical_offset": message.physical_offset,
        "reconsumed": message.reconsume_times,
        "properties": dict(message.properties),
        "body": body_text(message.body),
    }


def print_message(message: ReceivedMessage, *, as_json: bool) -> None:
    """Print a message in one line."""
    if as_json:
        show_json_line(message_row(message))
        return
    place = f"{message.queue.broker_name}/{message.queue_id}/{message.queue_offset}"
    tags = f" [{escaped(message.tags)}]" if message.tags else ""
    typer.secho(f"{time_text(message.store_ms)} {place}{tags} ", dim=True, nl=False)
    typer.echo(escaped(body_text(message.body)))


def body_text(body: bytes) -> str:
    """The body as text if it is UTF-8, else in hexadecimal; long ones are truncated."""
    shown = body[:_SHOWN_BYTES_MAX]
    try:
        # Leaves out a character that the cut splits.
        decoder = codecs.getincrementaldecoder("utf-8")()
        text = decoder.decode(shown, final=len(body) <= _SHOWN_BYTES_MAX)
    except UnicodeDecodeError:
        text = f"0x{shown.hex()}"
    return text if len(body) <= _SHOWN_BYTES_MAX else f"{text}… ({len(body)} bytes)"
