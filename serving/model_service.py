"""TensorFlow Serving's ModelService, answered from a `Repository`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
)

from .metrics import ServerMetrics
from .refusals import RefusedError, answering, invalid, not_found
from .repository import Repository, Source


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus and HandleReloadConfigRequest."""

    def __init__(self, repository: Repository, metrics: ServerMetrics):
        self.metrics = metrics
        self._repository = repository

    @answering
    def GetModelStatus(self, request: Any) -> Any:  # noqa: N802
        """Tells the state of a model's versions."""
        if not request.HasField("model_spec"):
            invalid("Missing ModelSpec")
        spec = request.model_spec
        states = self._repository.states(spec.name)
        if not states:
            not_found(f"Could not find any versions of model {spec.name}")
        version = spec.version.value if spec.HasField("version") else None
        if spec.version_label:
            version = self._repository.labelled(spec.name, spec.version_label)
        if version is not None:
            if version not in states:
                not_found(f"Could not find version {version} of model {spec.name}")
            states = {version: states[version]}
        response = get_model_status_pb2.GetModelStatusResponse()
        for number, state in states.items():
            entry = response.model_version_status.add()
            entry.version = number
            entry.state = get_model_status_pb2.ModelVersionStatus.State.Value(state.state)
            if state.message:
                entry.status.error_code = grpc.StatusCode.UNKNOWN.value[0]
                entry.status.error_message = state.message
        return response

    @answering
    def HandleReloadConfigRequest(self, request: Any) -> Any:  # noqa: N802
        """Serves the models of the request's list from now on, and no others."""
        if request.config.WhichOneof("config") != "model_config_list":
            invalid("ModelServerConfig must have a model_config_list")
        sources: dict[str, Source] = {}
        for config in request.config.model_config_list.config:
            if not config.name or config.name in sources:
                invalid(f"Illegal to list model {config.name!r} twice, or without a name")
            sources[config.name] = _source(config)
        self._repository.reload(sources)
        response = model_management_pb2.ReloadConfigResponse()
        response.status.error_code = grpc.StatusCode.OK.value[0]
        return response


def _source(config: Any) -> Source:
    """Where a model is and which of its versions are wanted: by default the newest."""
    folder = Path(config.base_path)
    if not folder.is_absolute():
        invalid(
            f"Expected model {config.name} to have an absolute path or URI; "
            f"got base_path()={config.base_path}"
        )
    if config.model_platform not in ("", "tensorflow"):
        invalid(f"Unsupported model_platform {config.model_platform!r}; there is: tensorflow")
    if not folder.is_dir():
        raise RefusedError(
            grpc.StatusCode.NOT_FOUND,
            f"Could not find base path {folder} for servable {config.name}",
        )
    policy = config.model_version_policy
    kind = policy.WhichOneof("policy_choice")
    labels = dict(config.version_labels)
    if kind == "specific":
        return Source(folder, frozenset(policy.specific.versions), None, labels)
    newest = None if kind == "all" else (policy.latest.num_versions or 1)
    return Source(folder, None, newest, labels)
