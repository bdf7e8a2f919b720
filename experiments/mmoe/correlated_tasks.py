r"""Two regression tasks over one input, as related as one wants: the MMoE paper's synthetic data.

Ma et al. (KDD 2018), "Modeling Task Relationships in Multi-task Learning with Multi-gate
Mixture-of-Experts", equations 2 to 4. With orthogonal unit vectors u_1, u_2 of R^d, a scale c and a
task correlation p,

    w_1 = c u_1                    w_2 = c (p u_1 + sqrt(1 - p^2) u_2)
    x   ~ Normal(0, I_d)
    y_k = w_k . x + sum_i sin(alpha_i w_k . x + beta_i) + epsilon_k,   epsilon_k ~ Normal(0, 0.01)

0.01 is the variance. The cosine of w_1 and w_2 is p; the correlation of the labels is not p,
because of the sines, but rises with it (`label_correlation` has it in closed form).

The paper's text leaves c, m, alpha and beta open. The defaults here are c = 1 and m = 2 sines of
amplitude 1 with alpha = (2, 4) and beta = (0, 1): on the scale of w.x, a wave of some three units
and one of half that length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfr_moe.errors import UserError

Floats: TypeAlias = NDArray[np.float64]


class Sample(NamedTuple):
    """Inputs [n, d] and the two labels [n, 2], both float32."""

    x: NDArray[np.float32]
    y: NDArray[np.float32]


@dataclass(frozen=True)
class CorrelatedTasks:
    """The equations' constants.

    Attributes:
        correlation: p, the cosine of the two weight vectors, from -1 to 1.
        num_features: d, at least 2.
        scale: c, the length of both weight vectors.
        alphas: frequencies of the sines.
        betas: their phases in radians, as many as there are frequencies.
        noise_variance: of epsilon.

    Raises:
        UserError: for a value out of range, or frequencies and phases of different number.

    Example:
        >>> tasks = CorrelatedTasks(correlation=0.5, num_features=3)
        >>> weights = draw_weights(tasks, seed=1)
        >>> weights.shape, round(float(weights[0] @ weights[1]), 6)
        ((2, 3), 0.5)
        >>> draw_sample(tasks, weights, size=10, seed=2).y.shape
        (10, 2)
    """

    correlation: float
    num_features: int = 100
    scale: float = 1.0
    alphas: tuple[float, ...] = (2.0, 4.0)
    betas: tuple[float, ...] = (0.0, 1.0)
    noise_variance: float = 0.01

    def __post_init__(self) -> None:
        if not -1 <= self.correlation <= 1:
            raise UserError(f"correlation must be between -1 and 1, got {self.correlation}")
        if self.num_features < 2:
            raise UserError(f"num_features must be at least 2, got {self.num_features}")
        if len(self.alphas) != len(self.betas):
            raise UserError(
                f"alphas and betas must be as many, got {len(self.alphas)} and {len(self.betas)}"
            )
        if self.scale <= 0 or self.noise_variance < 0:
            raise UserError("scale must be above 0 and noise_variance not below 0")


def draw_weights(tasks: CorrelatedTasks, seed: int) -> Floats:
    """[2, d]: w_1 and w_2 of equation 2, from a plane drawn uniformly."""
    normal = np.random.default_rng([seed, 0]).standard_normal((tasks.num_features, 2))
    u = np.linalg.qr(normal)[0].T
    p = tasks.correlation
    return tasks.scale * np.stack([u[0], p * u[0] + np.sqrt(1 - p**2) * u[1]])


def signal(tasks: CorrelatedTasks, projected: Floats) -> Floats:
    """The labels without noise, of w . x: z + sum_i sin(alpha_i z + beta_i), elementwise.

    Example:
        >>> tasks = CorrelatedTasks(correlation=1.0, alphas=(np.pi,), betas=(0.0,))
        >>> signal(tasks, np.array([0.0, 0.5])).round(6)
        array([0. , 1.5])
    """
    waves = (np.sin(a * projected + b) for a, b in zip(tasks.alphas, tasks.betas, strict=True))
    return sum(waves, np.array(projected, np.float64))


def draw_sample(
    tasks: CorrelatedTasks, weights: Floats, size: int, seed: int, part: int = 0
) -> Sample:
    """Returns `size` rows of equations 3 and 4; seed and part alone determine the inputs.

    Different parts of a seed are independent: a long stream need not be in memory at once.
    """
    rng = np.random.default_rng([seed, 1, part])
    x = rng.standard_normal((size, tasks.num_features), dtype=np.float32)
    noise = np.sqrt(tasks.noise_variance) * rng.standard_normal((size, 2))
    y = signal(tasks, x @ weights.T.astype(np.float32)) + noise
    return Sample(x, y.astype(np.float32))


def label_correlation(tasks: CorrelatedTasks) -> float:
    """Pearson's correlation of y_1 and y_2, exactly.

    z_1 = w_1 . x and z_2 = w_2 . x are normal with variance v = c^2 and covariance p v, of which
    the moments of sines follow, for s = (a, b) a frequency and a phase:

        E[z_1 sin(a z_2 + b)]             = a p v cos(b) exp(-a^2 v / 2)
        E[sin(a z + b)]                   = sin(b) exp(-a^2 v / 2)
        E[sin(a z_1 + b) sin(a' z_2 + b')] = 1/2 cos(b - b') exp(-(a^2 + a'^2 - 2 a a' p) v / 2)
                                           - 1/2 cos(b + b') exp(-(a^2 + a'^2 + 2 a a' p) v / 2)

    Example:
        >>> round(label_correlation(CorrelatedTasks(0.5, alphas=(), betas=(), noise_variance=0)), 6)
        0.5
    """
    shared = _signal_covariance(tasks, tasks.correlation)
    return shared / (_signal_covariance(tasks, 1.0) + tasks.noise_variance)


def _signal_covariance(tasks: CorrelatedTasks, p: float) -> float:
    """Covariance of the two labels without noise; with p = 1 the variance of either."""
    v = tasks.scale**2
    a, b = np.array(tasks.alphas, np.float64), np.array(tasks.betas, np.float64)
    linear_and_sines = 2 * np.sum(a * p * v * np.cos(b) * np.exp(-(a**2) * v / 2))
    squares = np.add.outer(a**2, a**2)
    products = 2 * p * np.multiply.outer(a, a)
    sines = 0.5 * np.cos(np.subtract.outer(b, b)) * np.exp(-(squares - products) * v / 2)
    sines -= 0.5 * np.cos(np.add.outer(b, b)) * np.exp(-(squares + products) * v / 2)
    mean = float(np.sum(np.sin(b) * np.exp(-(a**2) * v / 2)))
    return float(p * v + linear_and_sines + sines.sum() - mean**2)
