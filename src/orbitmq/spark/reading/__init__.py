"""Reading topics: planning on the driver, fetching in the tasks."""
