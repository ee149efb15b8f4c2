"""The Spark session, its Java and workers, and the clients that tasks share."""
