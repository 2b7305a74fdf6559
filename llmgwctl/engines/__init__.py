"""Model, profile and placement to the exact command line of each engine."""
