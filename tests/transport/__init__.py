"""The ways to reach a host, against real servers."""
