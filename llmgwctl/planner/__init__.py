"""The verbs: pure functions from declaration, state and observation to a plan."""
