"""From one exchange to its numbers, and whether they stand."""
