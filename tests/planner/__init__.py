"""Tests of the pure planner."""
