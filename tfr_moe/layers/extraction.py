"""PLE: experts of each domain beside shared ones, extracted level by level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.experts import ExpertTowers
from tfr_moe.layers.grouping import take_experts
from tfr_moe.layers.monitoring import TrainingMean
from tfr_moe.layers.rows import put_rows, take_rows, where_valid
from tfr_moe.layers.stacks import glorot_uniform


def layers_of_levels(hidden_dims: Sequence[int], num_levels: int) -> list[tuple[int, ...]]:
    """Deals hidden layers out to levels, in order; the first levels get those that are left over.

    Raises:
        ValueError: for no level, or a level without a layer.

    Example:
        >>> layers_of_levels([1024, 512, 256], 2)
        [(1024, 512), (256,)]
    """
    if not 1 <= num_levels <= len(hidden_dims):
        raise ValueError(
            f"num_levels must be 1 to the number of hidden layers. Received: num_levels={num_levels}, "
            f"hidden_dims={tuple(hidden_dims)}"
        )
    each, over = divmod(len(hidden_dims), num_levels)
    ends = [each * (level + 1) + min(level + 1, over) for level in range(num_levels)]
    return [tuple(hidden_dims[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


class _Level(tf.keras.layers.Layer):
    """The experts and gates of one level; see `ProgressiveExtraction`.

    Args:
        num_domains: D.
        own: m, experts of each domain.
        shared: s, shared experts.
        last: whether there is no level above, and so no shared gate.
        settings: further arguments of the experts.
        seed: of the gates.
    """

    def __init__(
        self,
        num_domains: int,
        own: int,
        shared: int,
        last: bool,
        settings: dict[str, Any],
        seed: int | None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_domains, self.own, self.last, self.seed = num_domains, own, last, seed
        parts: dict[str, Any] = {**settings, "hidden_output": True, "dtype": self.dtype_policy}
        later = None if seed is None else seed + 100
        self.domain_experts = ExpertTowers(
            num_domains * own, seed=seed, name="domain_experts", **parts
        )
        self.shared_experts = ExpertTowers(shared, seed=later, name="shared_experts", **parts)

    def build(self, input_shape: Any) -> None:
        """Creates the gates' kernels [D, n, m + s] and [n, D m + s], and the experts'."""
        width = int(input_shape[-1])
        shared = self.shared_experts.num_experts

        def gate(name: str, lead: list[int], experts: int, seed: int) -> Any:
            own = None if self.seed is None else self.seed + seed
            start = glorot_uniform(width, experts, own)
            shape = [*lead, width, experts]
            return self.add_weight(name, shape, tf.float32, start, experimental_autocast=False)

        self.gate_kernel = gate("gate_kernel", [self.num_domains], self.own + shared, 200)
        if not self.last:
            experts = self.num_domains * self.own + shared
            self.shared_gate_kernel = gate("shared_gate_kernel", [], experts, 300)
        for experts in (self.domain_experts, self.shared_experts):
            with tf.name_scope(experts.name):
                experts.build([None, width])
        super().build(input_shape)

    def every(self, own: Any, shared: Any, training: bool) -> tuple[Any, Any]:
        """All domains at once.

        Args:
            own: inputs of the domains [T, n], or [T, D, n] where each has its own.
            shared: input [T, n] of the shared part.
            training: whether dropout is active.

        Returns:
            What each domain extracts, float32 [T, D, h], and what the shared part does, [T, h]; None for
            that of the last level.
        """
        apart = len(own.shape) == 3
        inputs = tf.repeat(own, self.own, axis=1) if apart else own
        of_domains = self._experts(self.domain_experts, inputs, training)
        of_shared = self._experts(self.shared_experts, shared, training)
        weights = _softmax("tdn,dne->tde" if apart else "tn,dne->tde", own, self.gate_kernel)
        width = of_domains.shape[-1]
        each = tf.reshape(of_domains, [-1, self.num_domains, self.own, width])
        extracted = tf.einsum("tde,tdeh->tdh", weights[..., : self.own], each)
        extracted += tf.einsum("tde,teh->tdh", weights[..., self.own :], of_shared)
        if self.last:
            return extracted, None
        of_all = tf.concat([of_domains, of_shared], axis=1)
        weights = _softmax("tn,ne->te", shared, self.shared_gate_kernel)
        return extracted, tf.einsum("te,teh->th", weights, of_all)

    def of_lists(
        self, own: Any, shared: Any, domains: Any, mask: Any, training: bool
    ) -> tuple[Any, Any]:
        """What the domain of each list alone extracts.

        Args:
            own: [B, L, n], input of the list's domain.
            shared: [B, L, n], input of the shared part.
            domains: int32 [B].
            mask: bool [B, L].
            training: whether dropout is active.

        Returns:
            float32 [B, L, h], and the gate's weights [B, L, m + s].
        """
        chosen = domains[:, tf.newaxis] * self.own + tf.range(self.own)
        of_domain = self.domain_experts(own, chosen, mask=mask, training=training)
        of_shared = self.shared_experts(shared, mask=mask, training=training)
        outputs = tf.cast(tf.concat([of_domain, of_shared], axis=2), tf.float32)
        weights = self.gate_of_lists(own, domains)
        return tf.einsum("ble,bleh->blh", weights, outputs), weights

    def gate_of_lists(self, own: Any, domains: Any) -> Any:
        """The weights [B, L, m + s] of the domains' gates, from their inputs [B, L, n]."""
        kernel = take_experts(tf.convert_to_tensor(self.gate_kernel), domains)
        return _softmax("bln,bne->ble", own, kernel)

    @staticmethod
    def _experts(experts: ExpertTowers, rows: Any, training: bool) -> Any:
        return tf.cast(experts.every(tf.cast(rows, experts.compute_dtype), training), tf.float32)


def _softmax(product: str, inputs: Any, kernel: Any) -> Any:
    """Gate weights, in float32 under every precision policy."""
    return tf.nn.softmax(tf.einsum(product, tf.cast(inputs, tf.float32), kernel))


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ProgressiveExtraction(tf.keras.layers.Layer):
    r"""Progressive layered extraction: each domain mixes its own experts with shared ones, in levels.

    With E_{p,i} the m experts of domain p and E_{s,i} the s shared ones, level j extracts for domain p

    $$ g_p^j = \sum_i w_i \, [E_p(g_p^{j-1}), E_s(g_s^{j-1})]_i, \qquad
       w = \text{softmax}(W_p^j g_p^{j-1}), \qquad y_p = h_p(g_p^{last}) $$

    over the m + s experts that p may use, from g^0 = x, and a tower h_p of the domain gives the score. Below
    the last level the shared part extracts g_s^j in the same way, from the experts of all domains and the
    shared ones. One level is customised gate control (Tang et al. 2020, "Progressive Layered Extraction
    (PLE): A Novel Multi-Task Learning (MTL) Model for Personalized Recommendations", sections on CGC and
    PLE). Gates and mixing run in float32 under every precision policy.

    The paper's tasks are labels, all of them asked of each item: call it without `domains` for that.
    With `domains` each list has the one score of its domain. The last level and the towers then compute
    that domain's part alone, m + s experts an item. Below it the shared gate mixes the experts of all
    domains, so that all have to be computed: D m + s an item, for each level but the last. With many
    domains one level is the cheap one: its cost does not grow with their number.

    In training the layer shows `shared_share`: the share of the last gates' weight that goes to shared
    experts; it is s / (m + s) if they decide nothing. Only with `domains`.

    Args:
        num_domains: D, with domain 0 of unknown ones.
        hidden_dims: widths of the hidden layers of the experts through all levels, dealt out in order (see
            `layers_of_levels`): an item passes through as many at any number of levels.
        tower_hidden_dims: widths of the hidden layers of each domain's tower; empty for a linear one.
        num_levels: number of levels.
        num_domain_experts: m.
        num_shared_experts: s.
        activation: Keras name of the hidden activation.
        dropout: share of hidden units dropped in training.
        seed: seed of initialisation and dropout.
        num_outputs: logits for each item.

    Raises:
        ValueError: for no domain or expert, or more levels than `hidden_dims`.

    Example:
        >>> layer = ProgressiveExtraction(num_domains=3, hidden_dims=[8, 4], tower_hidden_dims=[4])
        >>> layer(tf.ones([2, 5, 6]), tf.constant([1, 0])).shape
        TensorShape([2, 5])
        >>> layer(tf.ones([2, 5, 6])).shape  # the scores of all domains
        TensorShape([2, 5, 3])
    """

    def __init__(
        self,
        num_domains: int,
        hidden_dims: Sequence[int] = (1024, 512, 256),
        tower_hidden_dims: Sequence[int] = (64,),
        num_levels: int = 2,
        num_domain_experts: int = 1,
        num_shared_experts: int = 2,
        activation: str = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        num_outputs: int = 1,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        for name, count in (
            ("num_domains", num_domains),
            ("num_domain_experts", num_domain_experts),
            ("num_shared_experts", num_shared_experts),
        ):
            if count < 1:
                raise ValueError(f"{name} must be >= 1. Received: {name}={count}")
        self._config = {
            "num_domains": num_domains,
            "hidden_dims": list(hidden_dims),
            "tower_hidden_dims": list(tower_hidden_dims),
            "num_levels": num_levels,
            "num_domain_experts": num_domain_experts,
            "num_shared_experts": num_shared_experts,
            "activation": activation,
            "dropout": dropout,
            "seed": seed,
            "num_outputs": num_outputs,
        }
        common: dict[str, Any] = {"activation": activation, "dropout": dropout}
        self.levels = [
            _Level(
                num_domains,
                num_domain_experts,
                num_shared_experts,
                last=number == num_levels - 1,
                settings={**common, "hidden_dims": dims},
                seed=None if seed is None else seed + 1000 * number,
                name=f"level_{number}",
                dtype=self.dtype_policy,
            )
            for number, dims in enumerate(layers_of_levels(hidden_dims, num_levels))
        ]
        self.towers = ExpertTowers(
            num_domains,
            tower_hidden_dims,
            seed=None if seed is None else seed + 500,
            num_outputs=num_outputs,
            name="towers",
            dtype=self.dtype_policy,
            **common,
        )
        self._shared_share = TrainingMean(name="shared_share")

    def build(self, input_shape: Any) -> None:
        """Builds the levels, each on the width that the one below extracts."""
        width = int(input_shape[-1])
        for level in self.levels:
            with tf.name_scope(level.name):
                level.build([None, width])
            width = level.shared_experts.hidden_dims[-1]
        with tf.name_scope(self.towers.name):
            self.towers.build([None, width])
        super().build(input_shape)

    @property
    def num_experts(self) -> int:
        """Experts of the last level, D m + s: those of domain 0, of domain 1 ..., then the shared ones."""
        last = self.levels[-1]
        return int(last.domain_experts.num_experts + last.shared_experts.num_experts)

    def gate_of_items(self, inputs: Any, domains: Any, mask: Any) -> tuple[Any, Any]:
        """The last level's gate of each item's domain, heaviest expert first.

        Args:
            inputs: [B, L, n].
            domains: int32 [B].
            mask: bool [B, L].

        Returns:
            Numbers of the experts (see `num_experts`), int32 [B, L, m + s], and their weights, float32, 0
            at padded items.
        """
        own, _ = self._below_the_last(where_valid(inputs, mask), domains, mask, training=False)
        weights = self.levels[-1].gate_of_lists(own, domains)
        weights *= tf.cast(mask[..., tf.newaxis], weights.dtype)
        m, s = self.levels[-1].own, self.levels[-1].shared_experts.num_experts
        shared = tf.range(self.num_experts - s, self.num_experts)
        of_domain = domains[:, tf.newaxis] * m + tf.range(m)
        numbers = tf.concat([of_domain, tf.tile(shared[tf.newaxis], [tf.shape(domains)[0], 1])], 1)
        top, order = tf.math.top_k(weights, k=m + s)
        return tf.gather(numbers, order, axis=1, batch_dims=1), top

    def call(
        self, inputs: Any, domains: Any = None, mask: Any = None, training: bool = False
    ) -> Any:
        """Scores the valid items, for the domain of their list or for all of them.

        Args:
            inputs: [B, L, n]; without `domains` [B, n] as well.
            domains: int32 [B]; None for all.
            mask: bool [B, L], True at valid items; None takes every item as valid.
            training: whether dropout and the metric are active.

        Returns:
            Logits, float32 [B, L], without `domains` [B, L, D]; with several outputs there is an axis
            for them after that. 0 at padded items.
        """
        if domains is None:
            return self._of_all(inputs, mask, training)
        if mask is None:
            mask = tf.ones(tf.shape(inputs)[:2], tf.bool)
        own, shared = self._below_the_last(where_valid(inputs, mask), domains, mask, training)
        hidden, weights = self.levels[-1].of_lists(own, shared, domains, mask, training)
        if training:
            share = tf.reduce_sum(weights[..., self._config["num_domain_experts"] :], axis=-1)
            self._shared_share.update_state(tf.stop_gradient(share), tf.cast(mask, tf.float32))
        logits = self.towers(hidden, domains[:, tf.newaxis], mask=mask, training=training)
        return tf.cast(tf.squeeze(logits, axis=2), tf.float32)

    def _below_the_last(
        self, inputs: Any, domains: Any, mask: Any, training: bool
    ) -> tuple[Any, Any]:
        """What the last level gets of the list's domain and of the shared part, each [B, L, n]."""
        if len(self.levels) == 1:
            return inputs, inputs
        rows, places = take_rows(inputs, mask)
        own, shared = rows, rows
        for level in self.levels[:-1]:
            own, shared = level.every(own, shared, training)
        of_items = tf.repeat(domains[:, tf.newaxis], tf.shape(inputs)[1], axis=1)
        of_rows, _ = take_rows(of_items[..., tf.newaxis], mask)
        own = tf.gather(own, of_rows[:, 0], axis=1, batch_dims=1)
        return put_rows(own, places, inputs), put_rows(shared, places, inputs)

    def _of_all(self, inputs: Any, mask: Any, training: bool) -> Any:
        rows, places = take_rows(inputs, mask)
        own, shared = rows, rows
        for level in self.levels:
            own, shared = level.every(own, shared, training)
        towers = self.towers
        logits = towers.every(tf.cast(own, towers.compute_dtype), training)  # [T, D, outputs]
        if towers.num_outputs == 1:
            logits = logits[..., 0]
        return put_rows(tf.cast(logits, tf.float32), places, inputs)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), **self._config}
