"""Configuration files to a resolved declaration, and back with comments kept."""
