"""The `tfr-moe` command; each command imports what it needs when it runs."""

from tfr_moe.cli.app import main

__all__ = ["main"]
