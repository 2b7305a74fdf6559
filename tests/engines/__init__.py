"""Command lines, refusals and the registry of engines."""
