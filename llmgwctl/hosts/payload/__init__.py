"""Files that are copied to hosts as they are."""
