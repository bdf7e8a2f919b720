"""Runs `tfr-moe` as `python -m tfr_moe.cli`."""

from tfr_moe.cli import main

if __name__ == "__main__":
    main()
