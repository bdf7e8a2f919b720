"""Analysis of trained models: gates, attention, learning curves, example lists."""
