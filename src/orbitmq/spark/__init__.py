"""Topics as Spark tables: source, sink and store scan for PySpark."""
