"""The pipeline file: its text, what it says, and what is wrong with it."""
