"""Reading messages: by queue, in bulk, by time, and from memory."""
