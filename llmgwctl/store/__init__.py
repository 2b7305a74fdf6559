"""The disk: state, journal, locks and saved plans."""
