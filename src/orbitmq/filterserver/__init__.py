"""The filter server: returns what a filter function accepts of a broker's queue."""
