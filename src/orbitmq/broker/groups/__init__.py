"""Consumer groups: their settings, members, committed offsets and locks."""
