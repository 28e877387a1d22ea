"""The runner: preflight, the trials of a suite, and nothing measured lost."""
