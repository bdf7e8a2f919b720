"""Our own studies: the models side by side, and variants beyond the paper."""
