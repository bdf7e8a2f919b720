"""RunConfig: all settings of a training run, typed, from YAML and `key=value` pairs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tfr_moe.errors import UserError, describe

MODEL_NAMES = ("dnn", "wide_dnn", "moe", "adv_moe", "hsc_moe", "adv_hsc_moe")
_ADVERSARIAL = ("adv_moe", "adv_hsc_moe")

ModelName = Literal["dnn", "wide_dnn", "moe", "adv_moe", "hsc_moe", "adv_hsc_moe"]


class RunConfig(BaseModel):
    """The settings of one training run; the defaults of the model are the first paper's.

    Attributes:
        model: which model.
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
        expert_hidden_dims: hidden layers of a tower.
        activation: of the hidden layers.
        dropout: share of hidden units dropped in training.
        embedding_dim: width of embeddings that the schema gives no width.
        embedding_l2: decay of the embeddings in use.
        loss: a name from `tfr_moe.losses.names()`.
        optimizer: adamw, adam, adagrad or sgd.
        learning_rate: of the optimizer.
        weight_decay: of AdamW, on weights but not on biases.
        clip_norm: largest norm of the whole gradient; None does not clip.
        batch_size: lists per step.
        list_size: longest list in training; None for no limit.
        shuffle_buffer_size: lists in the shuffle buffer.
        num_epochs: at most so many passes over the data.
        steps_per_epoch: steps that count as an epoch; None for one pass over the data.
        early_stopping_patience: epochs without a better `monitor` after which to stop; 0: never.
        monitor: the validation metric that chooses the best epoch, or `loss`.
        metrics: metrics computed on the validation data after each epoch.
        precision: float32, mixed_bfloat16 or mixed_float16.
        strategy: a distribution strategy of TFR's pipeline; None for one device.
        steps_per_execution: steps per call into the graph.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: ModelName = "adv_hsc_moe"
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
    expert_hidden_dims: tuple[int, ...] = (1024, 512, 256)
    activation: str = "relu"
    dropout: float = Field(0.0, ge=0, lt=1)
    embedding_dim: int = Field(16, ge=1)
    embedding_l2: float = Field(0.0, ge=0)
    loss: str = "sigmoid_cross_entropy"
    optimizer: Literal["adamw", "adam", "adagrad", "sgd"] = "adamw"
    learning_rate: float = Field(1e-4, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    clip_norm: float | None = Field(None, gt=0)
    batch_size: int = Field(128, ge=1)
    list_size: int | None = Field(None, ge=1)
    shuffle_buffer_size: int = Field(10_000, ge=1)
    num_epochs: int = Field(20, ge=1)
    steps_per_epoch: int | None = Field(None, ge=1)
    early_stopping_patience: int = Field(3, ge=0)
    monitor: str = "session_auc"
    metrics: tuple[str, ...] = ("session_auc", "ndcg")
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    strategy: Literal["MirroredStrategy", "MultiWorkerMirroredStrategy"] | None = None
    steps_per_execution: int = Field(1, ge=1)

    @model_validator(mode="after")
    def _check(self) -> RunConfig:
        if self.top_k > self.num_experts:
            raise ValueError(f"top_k must be <= num_experts = {self.num_experts}, got {self.top_k}")
        idle = self.num_experts - self.top_k
        if self.model in _ADVERSARIAL and self.num_adversarial > idle:
            raise ValueError(
                f"num_adversarial must be <= num_experts - top_k = {idle}, "
                f"got {self.num_adversarial}"
            )
        if self.monitor != "loss" and self.monitor not in self.metrics:
            raise ValueError(
                f"monitor must be loss or one of metrics ({', '.join(self.metrics)}), "
                f"got {self.monitor!r}"
            )
        if any(width < 1 for width in self.expert_hidden_dims):
            raise ValueError("expert_hidden_dims must be >= 1")
        return self

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

    Raises:
        UserError: in one line, with the setting at fault and, for an unknown one, the nearest known.
    """
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
