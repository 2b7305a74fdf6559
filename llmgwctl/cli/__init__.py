"""The command line: parse options, call the use case, print, map errors to exit codes."""
