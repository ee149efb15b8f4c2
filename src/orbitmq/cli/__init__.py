"""The orbitmq command line, the only place that prints."""
