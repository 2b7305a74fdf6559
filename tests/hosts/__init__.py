"""Tests of what happens on a host."""
