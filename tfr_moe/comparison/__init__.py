"""Comparison of the models that a team would try on one data set: what to ship, and how sure."""

from tfr_moe._compat import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__, {"run": ("claim", "compare")})
