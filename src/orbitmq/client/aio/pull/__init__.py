"""Pull consumers: messages are polled, or asked for queue by queue."""
