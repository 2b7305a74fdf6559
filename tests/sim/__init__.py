"""The simulated engine, run for real."""
