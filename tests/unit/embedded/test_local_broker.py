"""What the kill of an embedded broker leaves."""

from __future__ import annotations

from pathlib import Path

from orbitmq.embedded.local_broker import copy_running_store


def test_the_log_of_a_running_store_is_copied_after_what_refers_to_it(tmp_path: Path) -> None:
    store, image = tmp_path / "store", tmp_path / "image"
    for name in ("commitlog/0", "abort", "config/topics.json", "orbitmq/progress", "zoo"):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text(name)

    copy_running_store(store, image)

    copied = {
        path.relative_to(image).as_posix(): path.stat().st_ctime_ns
        for path in image.rglob("*")
        if path.is_file()
    }
    assert len(copied) == 5
    assert copied["commitlog/0"] == max(copied.values())
    assert (image / "commitlog/0").read_text() == "commitlog/0"
