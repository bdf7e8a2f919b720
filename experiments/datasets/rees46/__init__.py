"""REES46: events of an online shop."""
