"""Writing rows to topics: columns checked, messages encoded and sent."""
