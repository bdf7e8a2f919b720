"""The commands of `tfr-moe` by subject, put together by `tfr_moe.cli`; each imports its part when it runs."""
