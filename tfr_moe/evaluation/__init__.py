"""Offline evaluation: every list is scored once, metrics are computed per list in float64."""

from tfr_moe._compat import lazy_names

# Tests and tables of stored results do not load TensorFlow.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "breakdown": ("per_category",),
        "evaluate": (
            "compare_results",
            "evaluate_run",
            "evaluate_runs",
            "to_json",
        ),
        "examination": ("examination_curve",),
        "results": (
            "PerListResult",
            "Policy",
            "Summary",
            "evaluate_lists",
            "evaluate_tasks",
            "summarize",
        ),
        "scoring": ("score_dataset", "score_tasks"),
        "significance": (
            "Comparison",
            "alignment",
            "compare",
            "difference_interval",
            "seed_interval",
        ),
        "tables": ("render",),
    },
)
