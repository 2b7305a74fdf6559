"""A real llama.cpp server, for the tests that give it its command line."""

from lab.fixtures import llama

__all__ = ["llama"]
