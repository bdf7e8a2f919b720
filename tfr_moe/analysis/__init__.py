"""Analysis of trained models: gates, attention, calibration, learning curves, example lists."""
