"""Tests of the whole program."""
