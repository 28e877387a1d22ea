"""The command line: parse, call, print, and nothing else."""
