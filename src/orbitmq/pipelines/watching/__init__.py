"""What a running pipeline shows: one record of the run, and the views of it."""
