"""What a run will do and how long it will take."""
