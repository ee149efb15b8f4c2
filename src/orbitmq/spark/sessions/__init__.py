"""The Spark session, its Java and its workers, and clients shared by tasks."""
