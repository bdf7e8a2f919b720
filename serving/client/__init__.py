"""A client for ranking models behind TensorFlow Serving or the development server.

It imports neither TensorFlow nor Keras, so that a web application can carry it.
"""

from .client import RankingClient, RequestRecorder
from .ranking import Expert, RankedItem, Ranking, RequestError, VersionStatus
from .request import load_request

__all__ = [
    "Expert",
    "RankedItem",
    "Ranking",
    "RankingClient",
    "RequestError",
    "RequestRecorder",
    "VersionStatus",
    "load_request",
]


def __dir__() -> list[str]:
    return __all__
