"""RunConfig: all settings of a training run, typed, from YAML and `key=value` pairs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from tfr_moe.config_checks import check_monitor, check_strategy, check_tasks, check_towers
from tfr_moe.errors import UserError, describe
from tfr_moe.model_names import (
    ADVERSARIAL,
    BASELINE_NAMES,
    DENSE_MIXTURES,
    MODEL_DEFAULTS,
    MULTITASK_NAMES,
    WIDE_HEADS,
    BaselineName,
    ModelName,
)
from tfr_moe.model_names import MODEL_NAMES as MODEL_NAMES
from tfr_moe.presets import preset_settings
from tfr_moe.schema import FeatureSchema
from tfr_moe.tasks import (
    Task,
    TaskSettings,
    metric_of,
    resolve_tasks,
    settings_of_names,
)

_WIDTHS = ("expert_hidden_dims", "tower_hidden_dims", "auxiliary_hidden_dims", "tensor_ranks")


class RunConfig(BaseModel):
    """The settings of one training run; defaults are the first paper's or in `MODEL_DEFAULTS`.

    Attributes:
        model: which model.
        library_parameters: of the baselines (lambdamart, xgboost, svm_rank), parameters of their library
            by its own names; of the rest they take the seed and ignored_features.
        seed: seed of initialisation, shuffling, noise and the draw of idle experts.
        deterministic: makes TensorFlow's ops deterministic, at some cost in speed.
        num_experts: N.
        top_k: K.
        num_adversarial: D <= N - K.
        hsc_weight: lambda_1.
        adversarial_weight: lambda_2.
        importance_weight: weight of the balance of gate weight between experts.
        load_weight: weight of the balance of the number of items between experts.
        gate_learning_rate_multiplier: how many times faster than the rest the gates learn.
        noisy_gate: noise on the gate in training.
        gate_features: context features that the gate sees, or [all]; None: the child category.
        gate_init_scale: factor on the start of the gate's kernel; 0 starts all experts equal.
        gate_bias_rate: step of a bias that balances the choice of experts without a loss; 0 for none.
        gate_residual: whether the gate is the top category's gate plus a residual of the sub-category's.
        shared_expert: whether one more tower scores every item, beside those that the gate chooses.
        shared_weights: whether the experts' weights are those of one tower, each times a factor of the
            expert's own that starts as 1 (`StarTowers`).
        hsc_fixed_side: the gate that HSC does not move: none, constraint or inference.
        hsc_on: whether HSC compares the gates' probabilities, as in the paper, or their logits.
        hsc_warmup_steps: training steps over which hsc_weight grows from 0.
        adversarial_margin: difference of two experts beyond which AdvLoss rewards no more; None for none.
        adversarial_centred: whether AdvLoss takes each expert's mean over the list from its logits.
        adversarial_warmup_steps: training steps over which adversarial_weight grows from 0.
        expert_hidden_dims: hidden layers of a tower.
        expert_norm: normalisation of the hidden layers of experts and of dnn, wide_dnn and mlp: none, batch
            or layer; of each expert over its own valid items.
        dispatch: how items reach their experts: `segments`, or `capacity` for shapes that don't depend on
            the gate, as GPUs and XLA want them. Results are the same.
        expert_capacity: places of one group of items under `capacity`; an expert has as many as it needs.
        jit_compile: whether XLA compiles the experts in training; for `dispatch: capacity`.
        tasks: for multi-task models, the labels to learn: a list of names, or settings per name
            (see `TaskSettings`); None takes all labels of the data.
        score_combination: whether the combined score of the tasks is the weighted sum of their
            probabilities or of their logits.
        category_groups: for multi-task models, top categories as tasks in place of labels: the
            number of groups to make, or the groups themselves as lists of names. For ple and star, their
            domains; None takes every top category for one.
        tower_hidden_dims: hidden layers of each task's or domain's tower, on top of the
            expert_hidden_dims.
        parameter_budget: number of parameters above the embeddings that a multi-task model's
            expert_hidden_dims are scaled to; None leaves them.
        l2_weight: alpha of l2_constrained.
        own_share: a task's share of its own activations at the start of cross_stitch.
        tensor_ranks: the three ranks of tensor_factorization.
        unknown_share: of ple and star, share of the training lists that count as of an unknown domain.
        num_levels: of ple; its expert_hidden_dims are dealt out to the levels in order.
        num_domain_experts: experts that ple has for each domain, in each level.
        num_shared_experts: experts that ple has for all domains, in each level.
        auxiliary_hidden_dims: hidden layers of star's auxiliary network.
        domain_norm: whether star normalises the items' vectors by domain.
        trunk: `attention` puts a listwise self-attention encoder before the towers of any model, so
            that they see each item in the context of its list; context_aware and PRM always have it.
        attention_dim: width d_fc of the encoder; a multiple of attention_heads but for PRM.
        attention_blocks: N, the encoder's blocks.
        attention_heads: H, the heads of each block.
        attention_hidden_dim: d_h, the hidden layer of a block's feed-forward part.
        attention_residual: whether the blocks have residual connections.
        attention_points: learned points by way of which items attend to each other, for long lists:
            the cost grows with the length instead of its square; None: directly.
        positional_encoding: of the place in the initial list: none, fixed or learned.
        max_positions: places with a learned encoding of their own; later ones share the last.
        ignored_features: features that the items' vectors leave out, for ablations.
        personal_vector: the feature with PRM's personalised vectors.
        state_dim: width of dlcm's GRU.
        num_views: ways in which dlcm compares an item with its list.
        wide_crosses: pairs of features whose ids wide_deep crosses; None for each id of the list with
            each id of the items.
        cross_buckets: weights that wide_deep has for each of those pairs.
        activation: of the hidden layers.
        dropout: share of hidden units dropped in training, in towers and encoder.
        embedding_dim: width of embeddings that the schema gives no width.
        embedding_l2: decay of the embeddings in use.
        loss: a name from `tfr_moe.losses.names()`.
        max_label: the highest grade of the label, for the losses `rmse` and `ordinal`; None takes that
            of the training data.
        optimizer: adamw, keras_adamw (see `make_optimizer`), adam, adagrad or sgd.
        learning_rate: of the optimizer.
        learning_rate_drop_epoch: epoch after which the learning rate is a tenth; None for never.
        weight_decay: of AdamW, on weights but not on biases.
        clip_norm: largest norm of the whole gradient; None does not clip.
        batch_size: lists per step.
        list_size: longest list in training; None for no limit.
        shuffle_buffer_size: lists in the shuffle buffer.
        cache: where records that were parsed once are kept: none parses them in each epoch, memory keeps them
            for this run, disk below the data set for all runs. Cached training lists are shuffled
            over the whole split.
        profile: whether to measure how long training waits for its input, and to write a TensorBoard profile
            of some steps.
        num_epochs: at most so many passes over the data.
        steps_per_epoch: steps that count as an epoch; None for one pass over the data.
        early_stopping_patience: epochs without a better `monitor` after which to stop; 0: never.
        monitor: the validation metric that chooses the best epoch, or `loss`.
        metrics: metrics computed on the validation data after each epoch.
        precision: float32, mixed_bfloat16 or mixed_float16.
        strategy: a distribution strategy of TFR's pipeline; None for one device, or for the strategy
            that goes with the cluster. `batch_size` is that of all replicas together, but with
            parameter servers that of each worker.
        steps_per_execution: steps per call into the graph.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: Literal[ModelName, BaselineName] = "adv_hsc_moe"
    library_parameters: dict[str, Any] = {}
    seed: int = Field(1, ge=0)
    deterministic: bool = False
    num_experts: int = Field(10, ge=1)
    top_k: int = Field(4, ge=1)
    num_adversarial: int = Field(1, ge=1)
    hsc_weight: float = Field(1e-3, ge=0)
    adversarial_weight: float = Field(1e-3, ge=0)
    importance_weight: float = Field(0.0, ge=0)
    load_weight: float = Field(0.0, ge=0)
    gate_learning_rate_multiplier: float = Field(1.0, gt=0)
    noisy_gate: bool = True
    gate_features: tuple[str, ...] | None = None
    gate_init_scale: float = Field(1.0, ge=0)
    gate_bias_rate: float = Field(0.0, ge=0)
    gate_residual: bool = False
    shared_expert: bool = False
    shared_weights: bool = False
    hsc_fixed_side: Literal["none", "constraint", "inference"] = "none"
    hsc_on: Literal["probabilities", "logits"] = "probabilities"
    hsc_warmup_steps: int = Field(0, ge=0)
    adversarial_margin: float | None = Field(None, gt=0, le=1)
    adversarial_centred: bool = False
    adversarial_warmup_steps: int = Field(0, ge=0)
    expert_hidden_dims: tuple[int, ...] = (1024, 512, 256)
    expert_norm: Literal["none", "batch", "layer"] = "none"
    dispatch: Literal["segments", "capacity"] = "segments"
    expert_capacity: int = Field(256, ge=1)
    jit_compile: bool = False
    tasks: dict[str, TaskSettings] | None = None
    score_combination: Literal["probability", "logit"] = "probability"
    category_groups: int | tuple[tuple[str, ...], ...] | None = None
    tower_hidden_dims: tuple[int, ...] = (64,)
    parameter_budget: int | None = Field(None, ge=1)
    l2_weight: float = Field(1e-3, ge=0)
    own_share: float = Field(0.9, ge=0, le=1)
    tensor_ranks: tuple[int, int, int] = (16, 16, 2)
    unknown_share: float = Field(0.05, ge=0, lt=1)
    num_levels: int = Field(2, ge=1)
    num_domain_experts: int = Field(1, ge=1)
    num_shared_experts: int = Field(2, ge=1)
    auxiliary_hidden_dims: tuple[int, ...] = (64,)
    domain_norm: bool = True
    trunk: Literal["none", "attention"] = "none"
    attention_dim: int = Field(128, ge=1)
    attention_blocks: int = Field(2, ge=1)
    attention_heads: int = Field(2, ge=1)
    attention_hidden_dim: int = Field(128, ge=1)
    attention_residual: bool = True
    attention_points: int | None = Field(None, ge=1)
    positional_encoding: Literal["none", "fixed", "learned"] = "none"
    max_positions: int = Field(200, ge=1)
    ignored_features: tuple[str, ...] = ()
    personal_vector: str = "personal_vector"
    state_dim: int = Field(64, ge=1)
    num_views: int = Field(8, ge=1)
    wide_crosses: tuple[tuple[str, str], ...] | None = None
    cross_buckets: int = Field(10_000, ge=1)
    activation: str = "relu"
    dropout: float = Field(0.0, ge=0, lt=1)
    embedding_dim: int = Field(16, ge=1)
    embedding_l2: float = Field(0.0, ge=0)
    loss: str = "sigmoid_cross_entropy"
    max_label: int | None = Field(None, ge=1)
    optimizer: Literal["adamw", "keras_adamw", "adam", "adagrad", "sgd"] = "adamw"
    learning_rate: float = Field(1e-4, gt=0)
    learning_rate_drop_epoch: int | None = Field(None, ge=1)
    weight_decay: float = Field(0.01, ge=0)
    clip_norm: float | None = Field(None, gt=0)
    batch_size: int = Field(128, ge=1)
    list_size: int | None = Field(None, ge=1)
    shuffle_buffer_size: int = Field(10_000, ge=1)
    cache: Literal["none", "memory", "disk"] = "none"
    profile: bool = False
    num_epochs: int = Field(20, ge=1)
    steps_per_epoch: int | None = Field(None, ge=1)
    early_stopping_patience: int = Field(3, ge=0)
    monitor: str = "session_auc"
    metrics: tuple[str, ...] = ("session_auc", "ndcg")
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    strategy: (
        Literal["MirroredStrategy", "MultiWorkerMirroredStrategy", "ParameterServerStrategy"] | None
    ) = None
    steps_per_execution: int = Field(1, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_model(cls, data: Any) -> Any:
        return {**MODEL_DEFAULTS.get(str(data.get("model")), {}), **data}

    @field_validator("tasks", mode="before")
    @classmethod
    def _names_are_tasks(cls, value: Any) -> Any:
        return settings_of_names(value)

    @model_validator(mode="after")
    def _check(self) -> RunConfig:
        if self.top_k > self.num_experts and self.model not in DENSE_MIXTURES:
            raise ValueError(f"top_k must be <= num_experts = {self.num_experts}, got {self.top_k}")
        idle = self.num_experts - self.top_k
        if self.model in ADVERSARIAL and self.num_adversarial > idle:
            raise ValueError(
                f"num_adversarial must be <= num_experts - top_k = {idle}, "
                f"got {self.num_adversarial}"
            )
        for name in _WIDTHS:
            if min(getattr(self, name), default=1) < 1:
                raise ValueError(f"{name} must be >= 1")
        attends = self.trunk == "attention" or self.model == "context_aware"
        shared = attends and self.model not in WIDE_HEADS
        if shared and self.attention_dim % self.attention_heads:
            raise ValueError(
                f"attention_heads must divide attention_dim = {self.attention_dim}, "
                f"got {self.attention_heads}"
            )
        if self.library_parameters and self.model not in BASELINE_NAMES:
            raise ValueError(
                f"library_parameters is for {', '.join(BASELINE_NAMES)}, not {self.model}"
            )
        check_strategy(self)
        check_towers(self)
        check_tasks(self)
        check_monitor(self)
        return self

    @property
    def num_outputs(self) -> int:
        """Logits of an item, or of a task for an item: one for each grade under the loss `ordinal`."""
        named = [task.loss or self.loss for task in (self.tasks or {}).values()] or [self.loss]
        return self.max_label or 1 if "ordinal" in named else 1

    def tasks_over(self, schema: FeatureSchema) -> tuple[Task, ...]:
        """The tasks of this run on data of that schema; none where the model has a single score.

        Raises:
            UserError: for a task that is no label, or a monitor that is shown of no task.
        """
        if self.model not in MULTITASK_NAMES or self.category_groups is not None:
            return ()
        tasks = resolve_tasks(self.tasks, schema, self.loss, self.metrics)
        if tasks and self.monitor != "loss":
            metric_of(self.monitor, tasks)
        if not tasks and self.monitor not in ("loss", *self.metrics):
            raise UserError(
                f"monitor must be loss or one of {', '.join(self.metrics)}, got {self.monitor!r}"
            )
        return tasks

    def graded_tasks_over(self, schema: FeatureSchema) -> list[str]:
        """The tasks whose towers have an output for each grade (`tfr_moe.levels`)."""
        if self.num_outputs == 1:
            return []
        return [task.name for task in self.tasks_over(schema) if task.loss == "ordinal"]

    def save(self, path: Path) -> None:
        """Writes all settings as YAML; `load_config` reads them back equal."""
        text = yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)
        path.write_text(text, encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"config {path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(
            f"config {path}: not valid YAML ({' '.join(str(error).split())})"
        ) from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserError(f"config {path}: must be a mapping of setting to value")
    return data


def parse_pair(pair: str) -> tuple[str, Any]:
    """Takes `key=value` apart; the value is read as YAML.

    Raises:
        UserError: for a text that is no pair or a value that is not YAML.

    Example:
        >>> parse_pair("expert_hidden_dims=[64, 32]")
        ('expert_hidden_dims', [64, 32])
    """
    key, equals, text = pair.partition("=")
    if not equals or not key.strip():
        raise UserError(f"--set {pair!r}: must be key=value")
    try:
        return key.strip(), yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(f"--set {pair!r}: the value is not valid YAML") from None


def make_config(settings: dict[str, Any], where: str = "config") -> RunConfig:
    """A RunConfig from a mapping.

    The key `preset` names settings (see `tfr_moe.presets`) that stand below the mapping's own.

    Raises:
        UserError: in one line, with the setting at fault and, for an unknown one, the nearest known.
    """
    if settings.get("preset") is not None:
        below = preset_settings(str(settings["preset"]), settings.get("model"))
        settings = {**below, **settings}
    settings = {key: value for key, value in settings.items() if key != "preset"}
    for key in settings:
        if key not in RunConfig.model_fields:
            close = difflib.get_close_matches(str(key), RunConfig.model_fields, n=1)
            hint = (
                f"did you mean {close[0]!r}?"
                if close
                else f"there are: {', '.join(RunConfig.model_fields)}"
            )
            raise UserError(f"{where}: unknown key {key!r}; {hint}")
    try:
        return RunConfig.model_validate(settings)
    except ValidationError as error:
        raise UserError(f"{where}: {describe(error, settings)}") from error


def load_config(
    path: str | Path | None = None, overrides: Sequence[str] = (), **settings: Any
) -> RunConfig:
    """Reads a YAML file, then applies `settings`, then the `key=value` pairs.

    Raises:
        UserError: see `make_config`.

    Example:
        >>> load_config(overrides=["top_k=2", "expert_hidden_dims=[64, 32]"]).expert_hidden_dims
        (64, 32)
    """
    data = _read(Path(path)) if path else {}
    data.update(settings)
    data.update(parse_pair(pair) for pair in overrides)
    return make_config(data, f"config {path}" if path else "config")
