"""What trained models look at, as data and as pictures."""
