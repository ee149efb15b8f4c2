"""Audits of store directories and their replicas, run by Spark."""
