"""Adapters of single public data sets: sources for `tfr-moe build`, and preparation scripts."""
