"""Reads chosen queues, goes back in one of them, and commits by hand."""

from local_cluster import name_server
from orbitmq.client import LitePullConsumer, Message, Producer

with name_server() as namesrv:
    with Producer("shop", namesrv=namesrv) as producer:
        queue = next(iter(producer.queues("orders")))
        for number in range(5):
            producer.send(Message("orders", f"order {number}"), queue=queue)

    with LitePullConsumer("auditors", namesrv=namesrv, auto_commit=False) as consumer:
        consumer.assign([queue])
        consumer.seek_to_begin(queue)
        read = consumer.poll(max_messages=3)
        print("first time:", [message.body.decode() for message in read])

        consumer.seek(queue, 1)
        again = consumer.poll(max_messages=2)
        print("once more:", [message.body.decode() for message in again])

        consumer.commit({queue: again[-1].queue_offset + 1})
        print("resumes at", consumer.committed(queue))
