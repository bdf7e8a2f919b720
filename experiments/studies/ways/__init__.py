"""Ways to use the category of a list, in a training loop of their own: see `study`."""
