"""Tests of the configuration's reading, checking and formatting."""
