"""Decoding of bodies that Spark itself cannot decode without a JAR."""
