"""Running a pipeline: its DataFrames, its queries, what they report."""
