"""Sends a list of messages in one request, to one queue; all are stored, or none."""

from local_cluster import name_server
from orbitmq.client import Message, Producer

with name_server() as namesrv, Producer("shop", namesrv=namesrv) as producer:
    batch = [Message("orders", f"order {number}", tags="paid") for number in range(10)]
    result = producer.send(batch)
    first, *_, last = result.each(len(batch))
    print(f"{result.status.name}: offsets {first.queue_offset} to {last.queue_offset}")
