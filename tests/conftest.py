"""Settings of every test run."""

from __future__ import annotations

from hypothesis import settings

# Here, since with several workers only this file is read where their reports come together.
pytest_plugins = ["tests.interop.suite"]

# How long one example takes says more of the machine than of the code; every test has a time limit.
settings.register_profile("orbitmq", deadline=None)
settings.load_profile("orbitmq")
