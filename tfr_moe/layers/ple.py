"""Progressive layered extraction: experts of each domain beside shared ones, in levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfr_moe._compat import tf
from tfr_moe.layers.base import ConfiguredLayer, seeded_initializer
from tfr_moe.layers.checks import check_argument, valid_items
from tfr_moe.layers.dispatch import gather_rows, put_rows, take_rows, where_valid
from tfr_moe.layers.experts import TOWER, ExpertTowers


def layers_of_levels(hidden_dims: Sequence[int], num_levels: int) -> list[tuple[int, ...]]:
    """Distributes hidden layers over levels, in order; the first levels take the remainder."""
    if not 1 <= num_levels <= len(hidden_dims):
        raise ValueError(
            "num_levels must be from 1 to the number of hidden layers. "
            f"Received: num_levels={num_levels}, hidden_dims={tuple(hidden_dims)}"
        )
    each, over = divmod(len(hidden_dims), num_levels)
    ends = [each * (level + 1) + min(level + 1, over) for level in range(num_levels)]
    return [tuple(hidden_dims[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


class _Level(ConfiguredLayer):
    """The experts and gates of a level of `ProgressiveExtraction`; `last` has no shared gate."""

    def __init__(
        self,
        num_domains: int,
        num_domain_experts: int,
        num_shared_experts: int,
        last: bool,
        hidden_dims: Sequence[int],
        activation: Any,
        dropout: float,
        seed: int | None,
        kernel_initializer: Any,
        bias_initializer: Any,
        kernel_regularizer: Any,
        bias_regularizer: Any,
        gate_initializer: Any,
        gate_regularizer: Any,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        towers = self.arguments(*TOWER)
        towers |= {"hidden_output": True, "dtype": self.dtype_policy}
        self.domain_experts = ExpertTowers(
            num_domains * num_domain_experts, seed=seed, name="domain_experts", **towers
        )
        self.shared_experts = ExpertTowers(
            num_shared_experts, seed=self.offset_seed(100), name="shared_experts", **towers
        )

    @property
    def num_experts(self) -> int:
        """Number of all experts, D m + s."""
        return self.num_domains * self.num_domain_experts + self.num_shared_experts

    def build(self, input_shape: Any) -> None:
        """Creates the gates' kernels [D, n, m + s] and [n, D m + s], and the experts' weights."""
        width = int(input_shape[-1])

        def gate(name: str, shape: list[int], seed_offset: int, domains: int) -> tf.Variable:
            seed = self.offset_seed(seed_offset)
            start = seeded_initializer(self.gate_initializer, seed, domains)
            return self.add_float32_weight(name, shape, start, regularizer=self.gate_regularizer)

        each = [self.num_domains, width, self.num_domain_experts + self.num_shared_experts]
        self.gate_kernel = gate("gate_kernel", each, 200, self.num_domains)
        if not self.last:
            shape = [width, self.num_experts]
            self.shared_gate_kernel = gate("shared_gate_kernel", shape, 300, 1)
        for experts in (self.domain_experts, self.shared_experts):
            with tf.name_scope(experts.name):
                experts.build([None, width])
        super().build(input_shape)

    def all_domains(
        self, specific: tf.Tensor, shared: tf.Tensor, training: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Inputs of the domains, [T, n] for all or [T, D, n], and of the shared part -> the same.

        Returns what each extracts, float32 [T, D, h] and [T, h], in a level below the last.
        """
        per_domain = len(specific.shape) == 3
        inputs = tf.repeat(specific, self.num_domain_experts, axis=1) if per_domain else specific
        of_domains = self._all_experts(self.domain_experts, inputs, training)
        of_shared = self._all_experts(self.shared_experts, shared, training)
        product = "tdn,dne->tde" if per_domain else "tn,dne->tde"
        weights = _softmax(product, specific, self.gate_kernel)
        width, count = of_domains.shape[-1], self.num_domain_experts
        each = tf.reshape(of_domains, [-1, self.num_domains, count, width])
        extracted = tf.einsum("tde,tdeh->tdh", weights[..., :count], each)
        extracted += tf.einsum("tde,teh->tdh", weights[..., count:], of_shared)
        shared_weights = _softmax("tn,ne->te", shared, self.shared_gate_kernel)
        outputs = tf.concat([of_domains, of_shared], axis=1)
        return extracted, tf.einsum("te,teh->th", shared_weights, outputs)

    def domains_of_lists(
        self,
        specific: tf.Tensor,
        shared: tf.Tensor,
        domains: tf.Tensor,
        mask: tf.Tensor,
        training: bool,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes the domain of each list only, from inputs [B, L, n] as in `all_domains`.

        Returns what it extracts, float32 [B, L, h], and the gate's weights [B, L, m + s].
        """
        count = self.num_domain_experts
        selected = tf.expand_dims(domains, axis=1) * count + tf.range(count)
        of_domain = self.domain_experts(specific, selected, mask=mask, training=training)
        of_shared = self.shared_experts(shared, mask=mask, training=training)
        outputs = tf.cast(tf.concat([of_domain, of_shared], axis=2), tf.float32)
        kernel = gather_rows(tf.convert_to_tensor(self.gate_kernel), domains)
        weights = _softmax("bln,bne->ble", specific, kernel)
        return tf.einsum("ble,bleh->blh", weights, outputs), weights

    def routing(self, weights: tf.Tensor, domains: tf.Tensor) -> dict[str, tf.Tensor]:
        """Names the experts behind gate weights [..., m + s], heaviest first.

        IDs count the experts of domain 0, those of domain 1, ..., then the shared ones.
        """
        m, s = self.num_domain_experts, self.num_shared_experts
        top, order = tf.math.top_k(weights, k=m + s)
        others = tf.where(order < m, tf.expand_dims(domains, axis=-1), self.num_domains - 1) * m
        return {"expert_ids": others + order, "expert_weights": top}

    @staticmethod
    def _all_experts(experts: ExpertTowers, rows: tf.Tensor, training: bool) -> tf.Tensor:
        return tf.cast(
            experts.all_experts(tf.cast(rows, experts.compute_dtype), training), tf.float32
        )


def _softmax(product: str, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """Gate weights, in float32 under every precision policy."""
    return tf.nn.softmax(tf.einsum(product, tf.cast(inputs, tf.float32), kernel))


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class ProgressiveExtraction(ConfiguredLayer):
    r"""Progressive layered extraction (PLE): each domain mixes its own experts with shared ones.

    With E_p the m experts of domain p and E_s the s shared ones, level j extracts for domain p

    $$ g_p^j = \sum_i w_i \, [E_p(g_p^{j-1}), E_s(g_s^{j-1})]_i, \qquad
       w = \text{softmax}(W_p^j g_p^{j-1}), \qquad y_p = h_p(g_p^{last}) $$

    over the m + s experts that p may use, from g^0 = x; h_p is the tower of the domain. Below the
    last level the shared part extracts g_s^j in the same way from the experts of all domains and
    the shared ones. One level is customized gate control (CGC). Gates and mixing run in float32
    under every precision policy.

    Tang et al. 2020, "Progressive Layered Extraction (PLE): A Novel Multi-Task Learning (MTL) Model
    for Personalized Recommendations" (RecSys), https://doi.org/10.1145/3383313.3412236.

    The tasks of the paper are labels, each predicted for every item. Here each list gets the score
    of its own domain.

    Args:
        num_domains: D, including domain 0 of unknown categories.
        hidden_dims: widths of the experts' hidden layers, distributed over the levels in order: an
            item passes the same layers at any number of levels.
        tower_hidden_dims: hidden layers of each domain's tower; empty for a linear tower.
        num_domain_experts: m.
        num_shared_experts: s.
        kernel_initializer: of experts and towers; so are `bias_initializer` and the two
            regularizers of their weights.
        gate_initializer: of the gates' kernels, as is `gate_regularizer`.

    Raises:
        ValueError: for a number of domains or experts below 1, or more levels than `hidden_dims`.

    Example:
        >>> layer = ProgressiveExtraction(num_domains=3, hidden_dims=[8, 4], tower_hidden_dims=[4])
        >>> outputs = layer(tf.ones([2, 5, 6]), tf.constant([1, 0]))
        >>> outputs["logits"].shape, outputs["expert_ids"].shape
        (TensorShape([2, 5]), TensorShape([2, 5, 3]))
    """

    def __init__(
        self,
        num_domains: int,
        hidden_dims: Sequence[int] = (1024, 512, 256),
        tower_hidden_dims: Sequence[int] = (64,),
        num_levels: int = 2,
        num_domain_experts: int = 1,
        num_shared_experts: int = 2,
        activation: Any = "relu",
        dropout: float = 0.0,
        seed: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        gate_initializer: Any = "glorot_uniform",
        gate_regularizer: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.keep(locals())
        common = self.arguments(*TOWER[1:])
        self.levels = [
            _Level(
                num_domains,
                num_domain_experts,
                num_shared_experts,
                last=number == num_levels - 1,
                hidden_dims=dims,
                **common,
                **self.arguments("gate_initializer", "gate_regularizer"),
                seed=self.offset_seed(1000 * number),
                name=f"level_{number}",
                dtype=self.dtype_policy,
            )
            for number, dims in enumerate(layers_of_levels(self.hidden_dims, num_levels))
        ]
        self.towers = ExpertTowers(
            num_domains,
            tower_hidden_dims,
            seed=self.offset_seed(500),
            name="towers",
            dtype=self.dtype_policy,
            **common,
        )

    def build(self, input_shape: Any) -> None:
        """Builds the levels, each on the width that the level below extracts."""
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
        """Number of experts of the last level, D m + s; the shared ones have the last ids."""
        return self.levels[-1].num_experts

    def call(
        self,
        inputs: tf.Tensor,
        domains: tf.Tensor,
        mask: tf.Tensor | None = None,
        training: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Scores the valid items [B, L, n] for the domain of their list, int32 [B].

        Returns `logits` float32 [B, L], 0 at padded items. `expert_ids` int32 and `expert_weights`
        float32 are of the last level, [B, L, m + s], heaviest expert first.
        """
        mask = valid_items(inputs, mask)
        check_argument("domains", domains, "integers", inputs.shape[:1])
        specific, shared = self._below_last_level(
            where_valid(inputs, mask), domains, mask, training
        )
        last = self.levels[-1]
        hidden, weights = last.domains_of_lists(specific, shared, domains, mask, training)
        of_lists = tf.expand_dims(domains, axis=1)
        logits = self.towers(hidden, of_lists, mask=mask, training=training)
        weights *= tf.cast(tf.expand_dims(mask, axis=-1), weights.dtype)
        return {
            "logits": tf.cast(tf.squeeze(logits, axis=2), tf.float32),
            **last.routing(weights, of_lists),
        }

    def _below_last_level(
        self, inputs: tf.Tensor, domains: tf.Tensor, mask: tf.Tensor, training: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The last level's inputs of the list's domain and of the shared part, each [B, L, n]."""
        if len(self.levels) == 1:
            return inputs, inputs
        rows, positions = take_rows(inputs, mask)
        specific, shared = rows, rows
        for level in self.levels[:-1]:
            specific, shared = level.all_domains(specific, shared, training)
        of_rows = tf.gather(domains, tf.unstack(positions, axis=1)[0])
        specific = tf.gather(specific, of_rows, axis=1, batch_dims=1)
        return put_rows(specific, positions, inputs), put_rows(shared, positions, inputs)
