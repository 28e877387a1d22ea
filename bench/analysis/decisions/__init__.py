"""Which route, from where on, and how sure."""
