"""What many measurements say together."""
