"""What to ask a host, and how to read its answer."""
