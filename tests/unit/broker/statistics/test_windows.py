"""Windows: growth of counters between samples."""

from __future__ import annotations

from orbitmq.broker.statistics.windows import Growth, Track, Tracks, Window, Windows


def _sampled(window: Window, track: Track, *samples: tuple[float, int, int]) -> Growth:
    for at_ms, messages, size in samples:
        window.begin_sample(at_ms)
        window.take(track, (messages, size))
    return window.growth(track)


def test_growth_is_the_last_kept_sample_minus_the_first() -> None:
    window = Window(step_ms=10, samples_max=3)

    growth = _sampled(
        window, Track(), (0, 1, 10), (10, 3, 30), (20, 7, 90), (30, 8, 100), (40, 20, 200)
    )

    assert growth == Growth(messages=13, bytes=110, span_ms=20)
    assert growth.messages_per_second == 650
    assert growth.bytes_per_second == 5500


def test_a_counter_made_between_two_samples_grew_from_nothing() -> None:
    window = Window(step_ms=10, samples_max=7)
    window.begin_sample(0)
    window.begin_sample(10)
    late = Track()

    growth = _sampled(window, late, (20, 5, 50))

    assert growth == Growth(messages=5, bytes=50, span_ms=10)


def test_one_sample_gives_no_rate() -> None:
    window = Window(step_ms=10, samples_max=7)

    assert window.growth(Track()) == Growth()
    growth = _sampled(window, Track(), (0, 5, 50))
    assert growth.messages_per_second == growth.bytes_per_second == 0


def test_a_sample_is_due_after_the_step_or_just_before() -> None:
    window = Window(step_ms=10_000, samples_max=7)

    assert window.is_due(0)
    window.begin_sample(0)

    assert not window.is_due(9_000)
    assert window.is_due(9_999.7)


def test_an_idle_counter_keeps_one_object_for_all_samples() -> None:
    window = Window(step_ms=10, samples_max=7)
    track = Track()

    _sampled(window, track, (0, 1000, 9999), (10, 1000, 9999), (20, 1000, 9999))

    assert len({id(sample) for sample in track.samples}) == 1


def test_the_windows_reach_back_a_minute_an_hour_and_a_day() -> None:
    windows = Windows()
    tracks = Tracks()
    for window, track in zip(windows.all, tracks.by_window, strict=True):
        for number in range(100):
            window.begin_sample(number * window.step_ms)
            window.take(track, (number, number * 2))

    grown = tracks.growth(windows)

    assert grown.minute == Growth(messages=6, bytes=12, span_ms=60_000)
    assert grown.hour == Growth(messages=6, bytes=12, span_ms=3_600_000)
    assert grown.day == Growth(messages=24, bytes=48, span_ms=86_400_000)
