"""Options of the Spark formats, and the texts that they are written as."""
