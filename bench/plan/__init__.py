"""From a suite file to ordered trials."""
