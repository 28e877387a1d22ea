"""ctxbench: measures LLM servers at long context and says which route to serve."""
