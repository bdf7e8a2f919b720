"""What all scorers have in common: features become X, and TFR's builder makes a Keras model."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfr_moe._compat import tf, tfr
from tfr_moe.errors import UserError
from tfr_moe.layers.attention import SelfAttentionEncoder
from tfr_moe.layers.base import Configured, ConfiguredLayer, plain
from tfr_moe.layers.categories import CategoryHead
from tfr_moe.layers.features import EncodedFeatures, FeatureEncoder
from tfr_moe.schema import MASK, FeatureSchema, FeatureTables

FEATURES = "features"
"""Name of the layer that encodes the features."""
TRUNK = "trunk"
"""Name of the self-attention encoder, in a model that has one."""
CATEGORY_HEAD = "category_head"
"""Name of the linear scores by category, in a model that has them."""
ROUTING = "routing"
"""Name of the layer that holds the gates' choices, in a model with experts."""
_IDS, _WEIGHTS = "expert_ids", "expert_weights"


class Scores(NamedTuple):
    """What a scorer computes.

    Attributes:
        logits: [B, L], or with several outputs or tasks [B, L, ...].
        routing: the choice of each gate, as `routing_in` has it; empty without experts.
        num_experts: number of experts that the ids refer to.
    """

    logits: tf.Tensor
    routing: Mapping[str, tf.Tensor] = {}
    num_experts: int = 0

    @classmethod
    def of_layer(cls, layer: Any, outputs: tf.Tensor | Mapping[str, tf.Tensor]) -> Scores:
        """Scores of a layer that returned logits, or a dict of logits and routing."""
        if not isinstance(outputs, Mapping):
            return cls(outputs)
        return cls(outputs["logits"], routing_in(outputs), layer.num_experts)


def routing_of(outputs: Mapping[str, Any]) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """The ids and weights of the selected experts by task, see `explanation_model`.

    `outputs` are those of a layer or a model; the task of a gate of all tasks is "".
    """
    return {
        name.removeprefix(_IDS).removeprefix("_"): (ids, outputs[name.replace(_IDS, _WEIGHTS, 1)])
        for name, ids in outputs.items()
        if name.startswith(_IDS)
    }


def routing_in(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """`expert_ids[_<task>]` and `expert_weights[_<task>]` in the outputs of a layer or a model."""
    return {n: v for n, v in outputs.items() if n.startswith((_IDS, _WEIGHTS))}


@tf.keras.utils.register_keras_serializable(package="tfr_moe")
class RoutedScores(ConfiguredLayer):
    """Returns its inputs, so that the routing is part of a model whose outputs are logits alone.

    `num_experts` is the number of experts that the ids refer to.
    """

    def __init__(self, num_experts: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.keep(locals())

    def call(self, outputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns `logits` and the routing by name."""
        return dict(outputs)


@dataclass(eq=False)
class FeatureScorer(tfr.keras.model.Scorer, metaclass=abc.ABCMeta):
    """A TFR scorer over raw features: encodes them by the schema, then scores.

    Subclasses implement `score`, and have further arguments as fields of a dataclass. A scorer
    holds no variables; each call makes new layers, which TFR's model builder requires under a
    distribution strategy.

    Args:
        tables: statistics and vocabularies of its training split.
        embedding_dim: width of embeddings for which the schema has no width.
        embedding_l2: see `FeatureEncoder`.
        expert_hidden_dims: widths of the tower's hidden layers.
        seed: seed of all initializers and random draws; None for a random seed.
        trunk: arguments of a `SelfAttentionEncoder` between the features and the scores, so that
            each item is scored in the context of its list; None for none.
        ignored_features: features that are left out of the items' vectors, for ablations.
        list_relative: see `FeatureEncoder`.
        category_head: adds a `CategoryHead` over the features to the logits.

    Raises:
        UserError: if the schema lacks one of `ignored_features`, or the hierarchy of a
            `category_head`.
    """

    schema: FeatureSchema
    tables: FeatureTables
    embedding_dim: int = 16
    embedding_l2: float = 0.0
    expert_hidden_dims: tuple[int, ...] = (1024, 512, 256)
    activation: str = "relu"
    dropout: float = 0.0
    seed: int | None = None
    trunk: Mapping[str, Any] | None = None
    ignored_features: Sequence[str] = ()
    list_relative: bool = False
    category_head: bool = False

    def __post_init__(self) -> None:
        """Checks the arguments against the schema."""
        if self.category_head and self.schema.hierarchy is None:
            raise UserError("category_head: the schema has no `hierarchy`")
        for name in self.ignored_features:
            self.schema.feature(name)

    def arguments(self, layer: type[Configured]) -> dict[str, Any]:
        """The arguments of the scorer that a kind of layer has too."""
        shared = set(layer.argument_names())
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name in shared}

    @abc.abstractmethod
    def score(self, features: EncodedFeatures, mask: tf.Tensor) -> Scores:
        """Computes the logits, and the routing where there are experts.

        Items of the encoded features are [B, L, n] with n static, `mask` is bool [B, L].
        """

    def left_out(self) -> tuple[str, ...]:
        """The features that are not part of X."""
        return tuple(self.ignored_features)

    def encoder(self, name: str = FEATURES, **changes: Any) -> FeatureEncoder:
        """A new encoder of the features in the items' vectors, with some arguments changed."""
        arguments = {**self.arguments(FeatureEncoder), **changes}
        return FeatureEncoder(
            **arguments, **self.tables._asdict(), left_out=self.left_out(), name=name
        )

    def __call__(
        self,
        context_features: Mapping[str, tf.Tensor],
        example_features: Mapping[str, tf.Tensor],
        mask: tf.Tensor,
    ) -> Any:
        """Raw features, as `schema.feature_spec` parses them, and mask [B, L] -> logits [B, L]."""
        encoder = self.encoder()
        features = encoder(context_features, example_features, mask)
        items = features.items
        if self.trunk is not None:
            trunk = SelfAttentionEncoder(**{"seed": self.seed, **self.trunk}, name=TRUNK)
            items = trunk(items, mask=mask)
        scores = self.score(features._replace(items=items), mask)
        logits = scores.logits
        if self.category_head:
            outputs = logits.shape[2] if len(logits.shape) == 3 else 1
            parents, children = encoder.category_sizes()
            head = CategoryHead(parents, children, outputs, name=CATEGORY_HEAD)
            logits += head(features.items, features.categories, mask=mask)
        if not scores.routing:
            return logits
        routed = RoutedScores(scores.num_experts, name=ROUTING, dtype="float32")
        return routed({"logits": logits, **scores.routing})["logits"]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, ready for JSON."""
        names = [field.name for field in dataclasses.fields(self) if field.init]
        return {name: plain(name, getattr(self, name)) for name in names}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> FeatureScorer:
        """The inverse of `get_config`."""
        schema = FeatureSchema.model_validate(config["schema"])
        return cls(**{**config, "schema": schema, "tables": FeatureTables(**config["tables"])})

    def model_builder(self, name: str | None = None) -> tfr.keras.model.ModelBuilder:
        """A `tfr.keras.model.ModelBuilder` of this scorer, for the pipelines of TFR."""
        return tfr.keras.model.ModelBuilder(
            input_creator=tfr.keras.model.FeatureSpecInputCreator(
                self.schema.feature_spec("context"), self.schema.feature_spec("example")
            ),
            preprocessor=tfr.keras.model.PreprocessorWithSpec(),
            scorer=self,
            mask_feature_name=MASK,
            name=name,
        )

    def build_model(self, name: str | None = None) -> tf.keras.Model:
        """The uncompiled Keras model: raw features and mask in, logits [B, L] out."""
        return self.model_builder(name).build()


def find_layer(model: tf.keras.Model, name: str) -> tf.keras.layers.Layer | None:
    """The layer of a functional model by its name, if there is one."""
    return next((layer for layer in model.layers if layer.name == name), None)


def item_vectors(model: tf.keras.Model) -> tf.Tensor:
    """The symbolic vectors X [B, L, n] that a model of a `FeatureScorer` scores."""
    trunk = find_layer(model, TRUNK)
    return model.get_layer(FEATURES).output.items if trunk is None else trunk.output


def num_experts(model: tf.keras.Model) -> int:
    """Number of experts in a model of a `FeatureScorer`; 0 without experts."""
    routed = find_layer(model, ROUTING)
    return 0 if routed is None else routed.num_experts


def explanation_model(model: tf.keras.Model) -> tf.keras.Model | None:
    """The same model with the selected experts beside the scores; None without experts.

    `model` is a functional model of `FeatureScorer.build_model` or, for several tasks,
    `combined_model`.

    Returns:
        A model with the same inputs and variables. Its outputs are those of the model (a single one
        as `logits`, [B, L]), and `expert_ids` int32 and `expert_weights` float32, heaviest expert
        first: [B, K] for a gate per list, [B, L, K] for a gate per item. Where each task has a gate
        they are named `expert_ids_<task>` and `expert_weights_<task>`. `mmoe` has K = N; the gate
        of `ple` is that of the last level, over the experts of the list's domain.
    """
    routed = find_layer(model, ROUTING)
    if routed is None:
        return None
    scores = model.output if isinstance(model.output, dict) else {"logits": model.output}
    return tf.keras.Model(model.input, {**scores, **routing_in(routed.output)})


def inference_function(model: tf.keras.Model, schema: FeatureSchema) -> Callable[..., Any]:
    """One graph of a model in inference mode, for batches of any size.

    It takes the features of the schema, and the mask, from a dict that may have others too.
    """
    specs = {MASK: tf.TensorSpec([None, None], tf.bool)}
    for name, spec in schema.feature_spec("context").items():
        specs[name] = tf.TensorSpec([None, *spec.shape], spec.dtype)
    for name, spec in schema.feature_spec("example").items():
        specs[name] = tf.TensorSpec([None, None, *spec.shape], spec.dtype)
    graph = tf.function(
        lambda features: model(features, training=False),
        input_signature=[specs],
        autograph=False,
    )
    # A concrete function: TensorFlow warns about `tf.function` objects created in a loop.
    traced = graph.get_concrete_function()
    return lambda features: traced({name: features[name] for name in specs})
