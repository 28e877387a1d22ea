"""What the lines of a server's log mean."""
