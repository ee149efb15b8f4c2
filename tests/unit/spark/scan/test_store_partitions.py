from __future__ import annotations

from pyspark import cloudpickle

from orbitmq.spark.scan.store_partitions import QueueSlice, StoreLocation, StorePartition


def test_a_partition_travels_to_its_task() -> None:
    location = StoreLocation("/data/store", "broker-a")
    slices = [
        QueueSlice("orders", 0, 5, 10, 8, 6_000_000, b"\0" * 40),
        QueueSlice("orders", 1, 0, 3, 3, 6_000_000),
    ]

    partition = cloudpickle.loads(cloudpickle.dumps(StorePartition(location, slices)))

    assert partition.location == location
    assert partition.slices == tuple(slices)
    assert partition.count == 8
    assert repr(partition) == "StorePartition('/data/store', 2 queues, 8 rows)"
