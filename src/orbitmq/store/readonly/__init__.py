"""Reading store directories without changing them, also while a broker runs."""
