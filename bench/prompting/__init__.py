"""From text to prompts of exact length."""
