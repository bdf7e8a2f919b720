"""Ranking metrics by name: Keras metrics for training, NumPy metrics per list for evaluation."""

from tfr_moe._compat import lazy_names

# Evaluation needs the names and the NumPy metrics, not Keras.
__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "keras": (
            "MAP",
            "MRR",
            "NDCG",
            "PRMMAP",
            "PRMPrecision",
            "Precision",
            "SessionAUC",
            "get",
            "names",
        ),
        "naming": ("SUMMARIES",),
        "per_list": ("ListBatch", "PerListMetric", "resolve"),
    },
)
