"""The formulas of the papers, one list at a time in float64, with no thought of speed."""

import math

import numpy as np

MAX_LABEL = 4
MU = 10.0


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-np.asarray(x, np.float64)))


def softmax(x):
    e = np.exp(np.asarray(x, np.float64) - np.max(x))
    return e / e.sum()


def rmse(y, s, w):
    return math.sqrt(
        sum(wi * (yi - MAX_LABEL * sigmoid(si)) ** 2 for yi, si, wi in zip(y, s, w, strict=True))
    )


def ranks(s):
    """Places from 1 up by falling score."""
    order = sorted(range(len(s)), key=lambda i: -s[i])
    return {item: rank for rank, item in enumerate(order, start=1)}


def log_discount(i):
    return math.log2(1 + i)


def gains(y):
    best = sum((2**v - 1) / log_discount(r) for r, v in enumerate(sorted(y, reverse=True), start=1))
    return [(2**v - 1) / best if best else 0.0 for v in y]


def pairwise(y, s, w, exponent):
    rank, G = ranks(s), gains(y)
    total = 0.0
    for i in range(len(y)):
        for j in range(len(y)):
            if y[i] > y[j]:
                power = exponent(rank[i], rank[j]) * (
                    1.0 if exponent is unweighted else abs(G[i] - G[j])
                )
                total -= w[i] * power * math.log2(sigmoid(s[i] - s[j]))
    return total


def unweighted(i, j):
    return 1.0


def rho(i, j):
    return abs(1 / log_discount(i) - 1 / log_discount(j))


def rho_and_delta(i, j):
    apart = abs(i - j)
    return rho(i, j) + MU * abs(1 / log_discount(apart) - 1 / log_discount(apart + 1))


def ranknet(y, s, w):
    return pairwise(y, s, w, unweighted)


def lambdarank(y, s, w):
    return pairwise(y, s, w, rho)


def ndcg_loss_2pp(y, s, w):
    return pairwise(y, s, w, rho_and_delta)


def listnet(y, s, w):
    return -sum(w * softmax(y) * np.log(softmax(s)))


def listnet_binary(y, s, w):
    clicked = (np.asarray(y) > 0).astype(float)
    return -sum(w * clicked * np.log(softmax(s))) / clicked.sum() if clicked.any() else None


def listmle(y, s, w):
    order = sorted(range(len(y)), key=lambda i: -y[i])
    total = 0.0
    for start, item in enumerate(order):
        rest = sum(math.exp(s[other]) for other in order[start:])
        total -= w[item] * math.log(math.exp(s[item]) / rest)
    return total


def cross_entropy(target, logit):
    p = sigmoid(logit)
    return -(target * math.log(p) + (1 - target) * math.log(1 - p))


def sigmoid_cross_entropy(y, s, w):
    return [wi * cross_entropy(min(yi, 1), si) for yi, si, wi in zip(y, s, w, strict=True)]


def ordinal(y, s, w):
    return [
        wi * np.mean([cross_entropy(float(yi >= m), si[m - 1]) for m in range(1, MAX_LABEL + 1)])
        for yi, si, wi in zip(y, s, w, strict=True)
    ]


PER_LIST = {
    "rmse": rmse,
    "ranknet": ranknet,
    "lambdarank": lambdarank,
    "ndcg_loss_2pp": ndcg_loss_2pp,
    "listnet": listnet,
    "listnet_binary": listnet_binary,
    "listmle": listmle,
}
PER_ITEM = {"sigmoid_cross_entropy": sigmoid_cross_entropy, "ordinal": ordinal}
NAMES = (*PER_LIST, *PER_ITEM)


def loss(name, labels, logits, weights=None):
    """The mean over lists, or over items, of lists with labels >= 0 at valid places.

    A list weighs the mean of its items' weights; each item's term counts by its share of that.
    """
    top = bottom = 0.0
    for row in range(len(labels)):
        valid = np.asarray(labels[row]) >= 0
        if not valid.any():
            continue
        y = np.asarray(labels[row], np.float64)[valid]
        s = np.asarray(logits[row], np.float64)[valid]
        w = np.ones(len(y)) if weights is None else np.asarray(weights[row], np.float64)[valid]
        if name in PER_ITEM:
            top, bottom = top + sum(PER_ITEM[name](y, s, w)), bottom + sum(w)
            continue
        value = PER_LIST[name](y, s, w / w.mean())
        if value is not None:
            top, bottom = top + w.mean() * value, bottom + w.mean()
    return top / bottom if bottom else 0.0


def gradient(name, labels, logits, step=1e-6):
    """Central differences of `loss` by every logit."""
    logits = np.asarray(logits, np.float64)
    result = np.zeros_like(logits)
    for index in np.ndindex(logits.shape):
        up, down = logits.copy(), logits.copy()
        up[index] += step
        down[index] -= step
        result[index] = (loss(name, labels, up) - loss(name, labels, down)) / (2 * step)
    return result
