"""A simulated month of daily training: once, from scratch each day, or warm-started each day."""
