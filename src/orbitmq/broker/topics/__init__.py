"""The topics of a broker."""
