"""What is checked of a suite and its servers before the first expensive request."""
