"""RocketMQ's remoting protocol as bytes, without any I/O."""
