"""Records what Java's allocations choose into `tests/compat/allocations-<version>.json`.

Run by hand from the top of the repository, never in CI; it needs Java and Maven:

    python -m scripts.record_allocations
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from orbitmq.client.core.consuming.local_offsets import encode_offsets
from orbitmq.model.queues import MessageQueue
from tests.compat.allocation_cases import cases
from tests.interop import building
from tests.interop.drivers import JavaDriver

LINE = "v5"
SEED = 5
CASES = 60
OFFSETS = {
    MessageQueue(topic="orders", broker_name="broker-a", queue_id=0): 5,
    MessageQueue(topic="标签", broker_name="broker-b", queue_id=7): 2**40,
}


def main() -> None:
    """Ask the Java client, and write its answers."""
    building.build_java()
    made = list(cases(SEED, CASES))
    with tempfile.TemporaryDirectory() as folder:
        driver = JavaDriver(LINE, Path(folder)).start()
        try:
            chosen = driver.call("allocate", cases=made)["chosen"]
            file = driver.call("offset_file", text=encode_offsets(OFFSETS).decode())
        finally:
            driver.stop()
    recorded = {
        "cases": made,
        "chosen": chosen,
        "offset_file": file["text"],
        "offsets": sorted(file["offsets"]),
    }
    version = building.java_version(LINE, "client")
    target = Path("tests/compat") / f"allocations-{version}.json"
    target.write_text(json.dumps(recorded, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
