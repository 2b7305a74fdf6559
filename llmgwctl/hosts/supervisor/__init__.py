"""The texts in POSIX sh that start, watch and end a member on its host."""
