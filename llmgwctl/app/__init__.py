"""The use cases: the only place where pure and impure meet."""
