"""A member of an ordered group under the orders of a benchmark; the orders are OrderedMember's.

`python -m benchmarks.clients.ordered_member <name server> <topic> <group>`
"""

from __future__ import annotations

import sys

from orbitmq.client import PushConsumer, ReceivedMessage
from orbitmq.clock import SystemClock

CLOCK = SystemClock()


def tell(message: ReceivedMessage) -> None:
    """Print where and when a message came."""
    # In one piece: listeners of several queues print at the same time.
    print(f"got {message.queue_id} {CLOCK.now_ms()}\n", end="", flush=True)


def main() -> None:
    """Join and leave as ordered."""
    name_server, topic, group = sys.argv[1:]
    consumer = PushConsumer(
        group, on_message=tell, ordered=True, namesrv=name_server, consume_from="first"
    )
    consumer.subscribe(topic)
    print("ready", flush=True)
    for order in sys.stdin:
        if order.strip() == "join":
            consumer.start()
        else:
            consumer.stop()
            print("left", flush=True)
            return


if __name__ == "__main__":
    main()
