"""Context-aware ranking with self-attention (Pobrotyn et al. 2020): Tables 2 to 5."""
