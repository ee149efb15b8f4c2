"""Statements of SQL at the command line: asking them, answers as text, the shell."""
