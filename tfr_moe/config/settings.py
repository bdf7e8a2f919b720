"""The settings of a run, one small model per concern.

Each setting is documented once, at its field. Names are unique across the groups, so that files and
the command line use the flat name (`top_k: 2`) wherever the setting lives.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from tfr_moe.config.tasks import TaskSettings

# fmt: off
Activation = Literal[
    "relu", "elu", "exponential", "gelu", "hard_sigmoid", "leaky_relu", "linear", "mish", "selu",
    "sigmoid", "softplus", "softsign", "swish", "tanh",
]
# fmt: on
"""Element-wise activations of Keras."""


class Group(BaseModel):
    """Base of the groups: immutable; unknown names and infinite numbers are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Widths = tuple[PositiveInt, ...]


class GateSettings(Group):
    """The gate: how many experts there are, which it selects, and how it is trained."""

    num_experts: int = Field(20, ge=1, le=10_000, description="N, the number of experts")
    top_k: int = Field(2, ge=1, description="K, the number of experts selected for a list")
    gate_features: tuple[str, ...] | None = Field(
        None, description="context features that the gate reads, or [all]; null: the child category"
    )
    gate_residual: bool = Field(
        True, description="gate = gate of the parent category + residual of the child's"
    )
    noisy_gate: bool = Field(True, description="add noise to the gate's logits in training")
    gate_learning_rate_multiplier: float = Field(
        5.0, gt=0, description="factor on the learning rate for the gates"
    )
    importance_weight: float = Field(
        0.01, ge=0, description="weight of the penalty on unequal use of the experts"
    )


class ExpertSettings(Group):
    """The towers, which are the experts of a mixture, and how items are dispatched to them."""

    expert_hidden_dims: Widths = Field(
        (1024, 512, 256), description="widths of a tower's hidden layers"
    )
    activation: Activation = Field("relu", description="activation of the hidden layers")
    dropout: float = Field(0.0, ge=0, lt=1, description="share of hidden units dropped in training")
    shared_expert: bool = Field(
        True, description="add an expert that scores every item in addition to the selected ones"
    )
    category_head: bool = Field(
        False,
        description="add a linear score: weights of the parent category plus a difference for the "
        "child",
    )
    dispatch: Literal["auto", "sorted", "grouped"] = Field(
        "auto",
        description="dispatch of items to experts, with equal results: sorted; grouped, whose "
        "shapes do not depend on the gate, for XLA; auto: sorted, or grouped on a GPU",
    )
    expert_capacity: int = Field(
        256, ge=1, description="number of items of a group, for dispatch: grouped"
    )


class HSCSettings(Group):
    """The hierarchical soft constraint."""

    hsc_weight: float = Field(0.1, ge=0, description="lambda_1, weight of HSC")


class AdversarialSettings(Group):
    """The adversarial regularization."""

    num_adversarial: int = Field(1, ge=1, description="D <= N - K, idle experts drawn per list")
    adversarial_weight: float = Field(1e-3, ge=0, description="lambda_2, weight of AdvLoss")


class AttentionSettings(Group):
    """The self-attention encoder over the items of a list."""

    trunk: Literal["none", "attention"] = Field(
        "none", description="attention: a self-attention encoder precedes the towers"
    )
    attention_dim: int = Field(
        128, ge=1, description="width of the encoder; a multiple of attention_heads, except for PRM"
    )
    attention_blocks: int = Field(2, ge=1, description="number of encoder blocks")
    attention_heads: int = Field(2, ge=1, description="number of heads of a block")
    attention_hidden_dim: int = Field(
        128, ge=1, description="hidden layer of a block's feed-forward network"
    )
    attention_residual: bool = Field(True, description="residual connections in the blocks")
    positional_encoding: Literal["none", "fixed", "learned"] = Field(
        "none", description="encoding of the position in the initial list"
    )
    max_positions: int = Field(
        200,
        ge=1,
        description="positions with a learned encoding or bias; later ones share the last",
    )


class MultiTaskSettings(Group):
    """Several labels as tasks of one model."""

    tasks: dict[str, TaskSettings] | None = Field(
        None, description="labels to learn: a list of names, or settings per name; null: all"
    )
    score_combination: Literal["probability", "logit"] = Field(
        "probability",
        description="terms of the combined score: probabilities or logits of the tasks",
    )
    tower_hidden_dims: Widths = Field(
        (64,), description="hidden layers of each task's or domain's tower"
    )
    l2_weight: float = Field(1e-3, ge=0, description="alpha of l2_constrained")
    stitch_self_weight: float = Field(
        0.9,
        ge=0,
        le=1,
        description="initial weight of a task on its own activations in cross_stitch",
    )
    tensor_ranks: tuple[PositiveInt, PositiveInt, PositiveInt] = Field(
        (16, 16, 2), description="the three ranks of tensor_factorization"
    )

    @field_validator("tasks", mode="before")
    @classmethod
    def _names_are_tasks(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value):
            return {name: {} for name in value}
        return value

    @model_validator(mode="after")
    def _check(self) -> MultiTaskSettings:
        if self.tasks is not None and len(self.tasks) < 2:
            names = ", ".join(self.tasks) or "none"
            raise ValueError(f"tasks must be 2 labels or more, got {names}")
        return self


class DomainSettings(Group):
    """Top categories as domains: PLE and STAR."""

    unknown_share: float = Field(
        0.05, ge=0, lt=1, description="share of training lists assigned to the unknown domain"
    )
    num_levels: int = Field(2, ge=1, description="levels of ple, which share expert_hidden_dims")
    num_domain_experts: int = Field(1, ge=1, description="experts of each domain, per level of ple")
    num_shared_experts: int = Field(2, ge=1, description="shared experts, per level of ple")
    auxiliary_hidden_dims: Widths = Field(
        (64,), description="hidden layers of star's auxiliary network"
    )
    domain_norm: bool = Field(True, description="normalize the items' vectors by domain in star")


class RerankerSettings(Group):
    """Single models: PRM, DLCM, Wide & Deep."""

    personal_vector: str = Field(
        "personal_vector", description="feature with PRM's personalized vectors"
    )
    state_dim: int = Field(64, ge=1, description="width of dlcm's GRU")
    num_comparisons: int = Field(
        8, ge=1, description="comparisons of an item with its list in dlcm"
    )
    cross_buckets: int = Field(
        10_000, ge=1, description="hash buckets for each pair of features in wide_deep"
    )


class FeatureSettings(Group):
    """The input vectors."""

    embedding_dim: int = Field(
        16, ge=1, le=65_536, description="width of embeddings without a width in the schema"
    )
    embedding_l2: float = Field(
        0.0, ge=0, description="weight of an L2 penalty on the embeddings in use"
    )
    ignored_features: tuple[str, ...] = Field(
        (), description="features excluded from the input vector"
    )
    list_relative: bool = Field(
        False,
        description="add the rank of each item numeric within its list to the inputs",
    )


class BiasSettings(Group):
    """The bias of clicks by position."""

    position_bias: tuple[str, ...] = Field(
        (),
        description="the position column and presentation features whose bias is learned, but not "
        "part of the scores; []: none",
    )
    position_dropout: float = Field(
        0.1, ge=0, lt=1, description="share of training lists without the position bias"
    )


class LossSettings(Group):
    """The training loss."""

    loss: str = Field("sigmoid_cross_entropy", description="a name listed by `tfr-moe losses`")
    max_label: int | None = Field(
        None,
        ge=1,
        description="highest grade, for rmse and ordinal; null: that of the training data",
    )


class OptimizerSettings(Group):
    """The optimizer and its schedule."""

    optimizer: Literal["adamw", "keras_adamw", "adam", "adagrad", "sgd"] = Field(
        "adamw",
        description="adamw: FusedAdamW, which updates only the used rows of embedding tables of "
        "2^20 values or more, so that rare rows take smaller steps; keras_adamw: AdamW of "
        "Keras, which updates all rows in each step",
    )
    learning_rate: float = Field(1e-4, gt=0, description="learning rate")
    learning_rate_drop_epoch: int | None = Field(
        None, ge=1, description="epoch after which the learning rate is divided by 10; null: never"
    )
    weight_decay: float = Field(
        0.01, ge=0, description="weight decay of AdamW, not applied to biases"
    )
    clip_norm: float | None = Field(
        None, gt=0, description="maximum global norm of the gradient; null: no clipping"
    )


class DataSettings(Group):
    """How the data set is read."""

    batch_size: int = Field(
        128, ge=1, le=1_000_000, description="lists per step, over all replicas"
    )
    list_size: int | None = Field(
        None, ge=1, le=1_000_000, description="maximum length of a training list; null: no limit"
    )
    shuffle_buffer_size: int = Field(
        10_000,
        ge=1,
        # TensorFlow reserves all slots at once, and crashes without memory for them.
        le=10_000_000,
        description="lists in the shuffle buffer",
    )
    # Older runs have `disk`, whose lists came in the order of `memory`.
    cache: Annotated[
        Literal["auto", "none", "memory"],
        BeforeValidator(lambda value: "memory" if value == "disk" else value),
    ] = Field(
        "auto",
        description="whether to keep the parsed records of a run in memory, where lists are "
        "shuffled over the whole split; auto: up to 256 MB",
    )


class TrainingSettings(Group):
    """The training loop."""

    num_epochs: int = Field(20, ge=1, description="maximum number of epochs")
    steps_per_epoch: int | None = Field(
        None, ge=1, description="steps that count as an epoch; null: one pass over the data"
    )
    early_stopping_patience: int = Field(
        3,
        ge=0,
        description="epochs without improvement of monitor after which training stops; 0: never",
    )
    monitor: str = Field(
        "session_auc", description="validation metric that selects the best epoch, or loss"
    )
    metrics: tuple[str, ...] = Field(
        ("session_auc", "ndcg"), description="metrics on the validation data after each epoch"
    )
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = Field(
        "float32", description="Keras dtype policy"
    )
    deterministic: bool = Field(
        False,
        description="deterministic TensorFlow ops, at some cost in speed; a resumed run differs "
        "from an uninterrupted one nevertheless",
    )
    strategy: Literal["MirroredStrategy", "MultiWorkerMirroredStrategy"] | None = Field(
        None, description="distribution strategy; null: one device"
    )
    steps_per_execution: int = Field(1, ge=1, description="steps per call into the graph")


class BaselineSettings(Group):
    """Rankers of other libraries."""

    library_parameters: dict[str, Any] = Field(
        default_factory=dict, description="parameters of LightGBM, XGBoost or scikit-learn"
    )


class SettingGroups(Group):
    """The groups by their name in `RunConfig`."""

    gate: GateSettings = GateSettings()
    experts: ExpertSettings = ExpertSettings()
    hsc: HSCSettings = HSCSettings()
    adversarial: AdversarialSettings = AdversarialSettings()
    attention: AttentionSettings = AttentionSettings()
    multi_task: MultiTaskSettings = MultiTaskSettings()
    domains: DomainSettings = DomainSettings()
    rerankers: RerankerSettings = RerankerSettings()
    features: FeatureSettings = FeatureSettings()
    bias: BiasSettings = BiasSettings()
    objective: LossSettings = LossSettings()
    optimization: OptimizerSettings = OptimizerSettings()
    data: DataSettings = DataSettings()
    training: TrainingSettings = TrainingSettings()
    baseline: BaselineSettings = BaselineSettings()


GROUPS: dict[str, Any] = {
    name: field.annotation for name, field in SettingGroups.model_fields.items()
}


class Setting(NamedTuple):
    """A setting: the group it lives in and its field."""

    group: str
    field: FieldInfo


SETTINGS: dict[str, Setting] = {
    name: Setting(group, field)
    for group, kind in GROUPS.items()
    for name, field in kind.model_fields.items()
}
"""All settings of the groups by their flat name."""
