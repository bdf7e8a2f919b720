"""The papers' tables and figures, our own studies, and adapters for single public data sets.

Not installed with the library: run `python -m experiments` from a checkout. One folder per paper
holds its configs, its code and a README with the commands and the numbers to expect.
"""

import tfr_moe as tfr_moe  # first: it selects the Keras that TensorFlow Ranking needs
