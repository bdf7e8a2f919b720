"""Training of a run from a RunConfig: resumable, on one or several devices."""

from tfr_moe._compat import lazy_names

# A command that starts worker processes does not load TensorFlow itself.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "optimizers": ("FusedAdamW", "make_optimizer"),
        "pipeline": ("RankingPipeline",),
        "run": ("LoadedRun", "load_run", "make_scorer", "train"),
        "warm_start": ("WarmStart",),
    },
)
