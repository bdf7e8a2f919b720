"""Synthetic search logs whose labels follow from known utilities.

How labels arise. A session belongs to a sub-category c under a top category t(c), both with Zipf
traffic, and shows about `mean_list_length` distinct items, most of them from c. Each item i has M =
7 components z_i, standard normal and independent of each other: click-through rate, conversion
rate, price, sales volume, share of good comments, relevance to the query, and the quality of its
brand. The log shows monotone transforms of the first six; brand quality has no column and can be
learnt from the brand's ID only.

Weights of the components in sub-category c, with s = `category_strength`, d =
`sub_category_deviation` and unit(x) = x / |x|:

    w_c = unit((1 - s) w_0 + s unit(v_t(c) + d g_c))

    w_0    the same weight for every component
    v_t    square roots of a Dirichlet(0.4) draw, one per top category, the sign of price at random:
           few components count in each top category, and others in the next one
    g_c    a random direction of the sub-category's own

|w_c| = 1, so w_c . z has variance 1 in every category and at every strength: strength changes which
features matter, never how much there is to learn. At strength 0 all categories share w_0, and
prices have one level everywhere: nothing about the utility depends on the category, and a model
that specialises has nothing to gain. At strength 1 an ordinary network that is given the category's
embedding can represent the utility as well as a mixture of experts can; only data decide.

Utility, with q = `interactions`, user attributes age, power and activeness (standard normal), a
taste of the user for the item's sub-category (seen as `user_sub_category_ctr`) and the event that
the item's brand occurs in the user's click history:

    u_i = sqrt(1 - q) (sqrt(1 - p) w_c . z_i + sqrt(p) A_c . pairs(z_i))
          + sqrt(q / 2) (z_price power + z_comments age)
          + 0.2 (activeness + taste) + 0.3 [brand in history]

where c is the item's own sub-category, pairs(z) are the products of two different components (each
of variance 1, uncorrelated), p = `combinations` (0 by default) is how much lies in them, and

    A_c = unit((1 - s) A_0 + s unit(A_t(c) + d B_c))

with random directions A_0, A_t and B_c: which features matter together differs by category just as
which features matter does. The second and third line are the same in all categories.

Display: items are ordered by r w_0 . z + sqrt(1 - r^2) Normal(0, 1), r = `production_quality`: a
ranker that knows no categories. An item at position p is examined with probability
p^-b, b = `position_bias`. An examined item is clicked if u_i + noise * Logistic(0, 1) is above
a threshold, put into the cart if it is above a higher one, and bought above the highest; the
thresholds are set so that the rates are close to `click_rate`, `cart_rate` and `purchase_rate`.

Example:
    >>> import tempfile
    >>> from pathlib import Path
    >>> out = Path(tempfile.mkdtemp()) / "logs"
    >>> generate(out, SearchLogOptions(sessions=20, num_files=1))
    >>> sorted(path.name for path in out.iterdir())
    ['logs-00000-of-00001.csv.gz', 'schema.yaml', 'truth.json']
"""

from __future__ import annotations

from .options import SearchLogOptions, parse_options
from .sessions import Chunk, SessionGenerator, thresholds
from .world import COMPONENTS, World, build_world
from .writing import generate, search_log_schema

__all__ = [
    "COMPONENTS",
    "Chunk",
    "SearchLogOptions",
    "SessionGenerator",
    "World",
    "build_world",
    "generate",
    "parse_options",
    "search_log_schema",
    "thresholds",
]
