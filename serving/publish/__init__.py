"""Publishes a trained run as the next version of a model, if it is not worse than the live one."""

from .publish import Decision, publish, roll_back

__all__ = ["Decision", "publish", "roll_back"]
