"""What each engine says and does: dialects, metrics pages, context rules. Pure."""
