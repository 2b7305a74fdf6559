"""Plan and apply for a fleet of GPU hosts that serve language models."""

__version__ = "0.1.0"
