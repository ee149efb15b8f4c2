"""Polls messages of a topic whose queues are shared with the other members of a group."""

from local_cluster import name_server
from orbitmq.client import LitePullConsumer, Message, Producer

with name_server() as namesrv:
    with Producer("shop", namesrv=namesrv) as producer:
        for number in range(10):
            producer.send(Message("orders", f"order {number}", tags="paid"))

    with LitePullConsumer("billing", namesrv=namesrv, consume_from="first") as consumer:
        consumer.subscribe("orders", "paid || shipped")
        done = 0
        while done < 10:
            # The next call marks these messages as done, so that they may be committed.
            for message in consumer.poll(timeout_ms=1000):
                print(message.body.decode(), "from queue", message.queue_id)
                done += 1
        # What the last poll returned is done, too.
        consumer.commit()
