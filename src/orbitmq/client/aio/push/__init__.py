"""Push consumers: messages are pulled and handed to a listener."""
