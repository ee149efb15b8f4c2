"""Tests of the transport must leave nothing behind."""

from __future__ import annotations

from tests.integration.transport import leaks

nothing_is_left_behind = leaks.nothing_is_left_behind
