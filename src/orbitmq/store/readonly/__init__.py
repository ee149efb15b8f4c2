"""Store directories read without changing anything, beside a broker or not."""
