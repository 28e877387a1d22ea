"""A simulated server with known truth: vLLM's dialect, any speed, every fault by name."""
