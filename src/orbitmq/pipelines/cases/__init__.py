"""Cases of a pipeline: recorded messages, and the rows that are expected."""
