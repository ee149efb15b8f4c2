"""Pipelines: topics to tables to topics, described in a file and run by Spark."""
