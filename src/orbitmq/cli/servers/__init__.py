"""Running servers from the command line: one, or a whole cluster."""
