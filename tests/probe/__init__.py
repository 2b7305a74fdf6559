"""Tests of the inventory probe."""
