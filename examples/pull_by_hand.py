"""Reads every queue of a topic to its end, keeping track of offsets by hand."""

from local_cluster import name_server
from orbitmq.client import Message, Producer, PullConsumer

with name_server() as namesrv:
    with Producer("shop", namesrv=namesrv) as producer:
        for number in range(20):
            producer.send(Message("orders", f"order {number}"))

    with PullConsumer("auditors", namesrv=namesrv) as consumer:
        total = 0
        for queue in consumer.queues("orders"):
            offset = consumer.committed(queue) or consumer.min_offset(queue)
            while offset < consumer.max_offset(queue):
                result = consumer.pull(queue, "*", offset)
                total += len(result.messages)
                offset = result.next_offset
            consumer.commit({queue: offset})
            print(f"queue {queue.queue_id} is read up to {offset}")
        print(f"{total} messages")
