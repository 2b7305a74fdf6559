"""Tests of state, lock and files."""
