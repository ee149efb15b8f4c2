"""Sends the messages of an order to the same queue, so that they keep their order."""

from local_cluster import name_server
from orbitmq.client import Message, Producer, queue_selectors

with name_server() as namesrv, Producer("shop", namesrv=namesrv) as producer:
    for order in (7, 8):
        for step in ("created", "paid", "shipped"):
            # A queue chosen by the order's number; a function of your own does as well.
            result = producer.send(
                Message("order-steps", f"{order} {step}"),
                selector=queue_selectors.by_hash,
                argument=order,
            )
            print(order, step, "queue", result.queue.queue_id, "offset", result.queue_offset)

    # Or name the queue.
    queue = producer.queues("order-steps")[0]
    print("first queue:", producer.send(Message("order-steps", "9 created"), queue=queue).queue)
