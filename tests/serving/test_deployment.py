"""The files that run TensorFlow Serving: Docker, Kubernetes, the server's configuration."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf import wrappers_pb2 as wrappers

SERVING = Path(__file__).resolve().parents[2] / "serving"
CONFIG, DOCKER, KUBERNETES = SERVING / "config", SERVING / "docker", SERVING / "kubernetes"
MANIFESTS = sorted(KUBERNETES.glob("*.yaml"))
F = descriptor_pb2.FieldDescriptorProto

# The messages that tensorflow-serving-api does not bring, by the field names and numbers of the
# server's public definitions: message -> (name, number, type or type name, repeated).
INT64, BOOL, STRING, DOUBLE = F.TYPE_INT64, F.TYPE_BOOL, F.TYPE_STRING, F.TYPE_DOUBLE
WRAPPED = ".google.protobuf.Int64Value"
MESSAGES: dict[str, list[tuple[str, int, Any, bool]]] = {
    "PrometheusConfig": [("enable", 1, BOOL, False), ("path", 2, STRING, False)],
    "MonitoringConfig": [("prometheus_config", 1, ".tensorflow.serving.PrometheusConfig", False)],
    "BatchingParameters": [
        ("max_batch_size", 1, WRAPPED, False),
        ("batch_timeout_micros", 2, WRAPPED, False),
        ("max_enqueued_batches", 3, WRAPPED, False),
        ("num_batch_threads", 4, WRAPPED, False),
        ("allowed_batch_sizes", 6, INT64, True),
    ],
    "GPUOptions": [
        ("per_process_gpu_memory_fraction", 1, DOUBLE, False),
        ("allow_growth", 4, BOOL, False),
    ],
    "ConfigProto": [
        ("gpu_options", 6, ".tensorflow.serving.GPUOptions", False),
        ("allow_soft_placement", 7, BOOL, False),
    ],
    "SessionBundleConfig": [
        ("session_config", 2, ".tensorflow.serving.ConfigProto", False),
        ("batching_parameters", 3, ".tensorflow.serving.BatchingParameters", False),
        ("saved_model_tags", 6, STRING, True),
        ("enable_model_warmup", 779, BOOL, False),
    ],
    "SavedModelBundleSourceAdapterConfig": [
        ("legacy_config", 1000, ".tensorflow.serving.SessionBundleConfig", False)
    ],
    "PlatformConfig": [("source_adapter_config", 1, ".google.protobuf.Any", False)],
    "PlatformEntry": [
        ("key", 1, STRING, False),
        ("value", 2, ".tensorflow.serving.PlatformConfig", False),
    ],
    "PlatformConfigMap": [("platform_configs", 1, ".tensorflow.serving.PlatformEntry", True)],
}


@pytest.fixture(scope="module")
def pool() -> descriptor_pool.DescriptorPool:
    made = descriptor_pool.DescriptorPool()
    for known in (any_pb2, wrappers):
        made.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="server.proto",
        package="tensorflow.serving",
        syntax="proto3",
        dependency=[any_pb2.DESCRIPTOR.name, wrappers.DESCRIPTOR.name],
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            label = F.LABEL_REPEATED if repeated else F.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = F.TYPE_MESSAGE, kind
            else:
                added.type = kind
    made.Add(file) if hasattr(made, "Add") else made.AddSerializedFile(file.SerializeToString())
    return made


def read(pool: descriptor_pool.DescriptorPool, message: str, path: Path) -> Any:
    kind = pool.FindMessageTypeByName(f"tensorflow.serving.{message}")
    empty = message_factory.GetMessageClass(kind)()
    return text_format.Parse(path.read_text(), empty, descriptor_pool=pool)


def test_the_model_config_names_a_model_below_the_mounted_folder():
    from tensorflow_serving.config import model_server_config_pb2

    config = text_format.Parse(
        (CONFIG / "models.config").read_text(), model_server_config_pb2.ModelServerConfig()
    )
    (shop,) = config.model_config_list.config
    assert (shop.name, shop.base_path, shop.model_platform) == (
        "shop",
        "/models/shop",
        "tensorflow",
    )
    assert shop.model_version_policy.latest.num_versions == 1


def test_the_labels_in_the_comments_are_a_valid_configuration():
    """Uncommented, they replace the policy, and each label names one of the two versions."""
    from tensorflow_serving.config import model_server_config_pb2

    text = (CONFIG / "models.config").read_text()
    lines = re.findall(r"#   (model_version_policy { latest.*|version_labels.*)", text)
    used = re.sub("#.*", "", text).replace(
        "model_version_policy { latest { num_versions: 1 } }", ""
    )
    config = text_format.Parse(
        used.replace("model_platform", " ".join(lines) + " model_platform"),
        model_server_config_pb2.ModelServerConfig(),
    )
    (shop,) = config.model_config_list.config
    assert dict(shop.version_labels) == {"stable": 41, "canary": 42}
    assert shop.model_version_policy.latest.num_versions == 2


def test_batching_never_waits_and_never_splits(pool):
    actual = read(pool, "BatchingParameters", CONFIG / "batching.config")
    assert actual.batch_timeout_micros.value == 0
    assert actual.max_batch_size.value == 32
    settings = re.sub("#.*", "", (CONFIG / "batching.config").read_text())
    assert "enable_large_batch_splitting" not in settings


def test_prometheus_is_scraped_where_the_server_has_its_metrics(pool):
    config = read(pool, "MonitoringConfig", CONFIG / "monitoring.config").prometheus_config
    assert config.enable
    for path in (KUBERNETES / "cpu.yaml", KUBERNETES / "gpu.yaml"):
        pod = next(yaml.safe_load_all(path.read_text()))["spec"]["template"]
        assert pod["metadata"]["annotations"]["prometheus.io/path"] == config.path


def test_the_platform_config_batches_as_the_flags_do(pool):
    (entry,) = read(pool, "PlatformConfigMap", CONFIG / "platform.config").platform_configs
    assert entry.key == "tensorflow"
    packed = entry.value.source_adapter_config
    kind = pool.FindMessageTypeByName(packed.type_url.split("/")[1])
    adapter = message_factory.GetMessageClass(kind).FromString(packed.value)
    bundle = adapter.legacy_config
    assert bundle.batching_parameters == read(
        pool, "BatchingParameters", CONFIG / "batching.config"
    )
    assert bundle.enable_model_warmup
    assert list(bundle.saved_model_tags) == ["serve"]


def commands() -> dict[str, tuple[str, list[str]]]:
    """Image and flags of every file that starts a server."""
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    result = {
        name: (re.sub(r"\$\{\w+:-(.*)\}", r"\1", service["image"]), service["command"])
        for name, service in services.items()
    }
    for kind in ("cpu", "gpu"):
        deployment = next(yaml.safe_load_all((KUBERNETES / f"{kind}.yaml").read_text()))
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        result[f"kubernetes-{kind}"] = container["image"], container["args"]
    return result


@pytest.mark.parametrize("server", ["cpu", "gpu", "kubernetes-cpu", "kubernetes-gpu"])
def test_every_server_is_pinned_and_has_the_flags_of_the_guide(server):
    image, flags = commands()[server]
    assert re.fullmatch(r"tensorflow/serving:\d+\.\d+\.\d+(-gpu)?", image)
    given = dict(flag.removeprefix("--").split("=") for flag in flags)
    assert int(given["grpc_max_threads"]) >= 64
    assert given["max_num_load_retries"] == "1"
    assert int(given["load_retry_interval_micros"]) <= 1_000_000
    assert given["enable_model_warmup"] == "true"
    # Without it a server whose configuration has labels does not start.
    assert given["allow_version_labels_for_unavailable_models"] == "true"
    assert image.endswith("-gpu") == ("gpu" in server) == ("enable_batching" in given)
    for name, value in given.items():
        if name.endswith(("config_file", "parameters_file")):
            assert (CONFIG / Path(value).name).is_file(), value


def test_the_config_map_has_copies_of_the_files():
    data = yaml.safe_load((KUBERNETES / "config-map.yaml").read_text())["data"]
    assert set(data) == {"models.config", "batching.config", "monitoring.config"}
    for name, text in data.items():
        assert text == (CONFIG / name).read_text(), name


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda p: p.name)
def test_the_manifests_are_valid_kubernetes(path):
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    for document in documents:
        validate.validate(document, "1.31", strict=True)


def test_references_between_objects_resolve():
    objects = [d for p in MANIFESTS for d in yaml.safe_load_all(p.read_text())]
    names = {(o["kind"], o["metadata"]["name"]) for o in objects}
    assert len(names) == len(objects)
    for deployment in (o for o in objects if o["kind"] == "Deployment"):
        spec = deployment["spec"]
        pod = spec["template"]
        assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        volumes = {v["name"]: v for v in pod["spec"]["volumes"]}
        claim = volumes["models"]["persistentVolumeClaim"]["claimName"]
        assert ("PersistentVolumeClaim", claim) in names
        assert ("ConfigMap", volumes["config"]["configMap"]["name"]) in names
        (container,) = pod["spec"]["containers"]
        assert {m["name"] for m in container["volumeMounts"]} == set(volumes)
        assert container["readinessProbe"]["httpGet"]["path"].startswith("/v1/models/")
        ports = {p["name"] for p in container["ports"]}
        for service in (o for o in objects if o["kind"] == "Service"):
            assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
            assert {p["targetPort"] for p in service["spec"]["ports"]} <= ports
    for scaler in (o for o in objects if o["kind"] == "HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) in names


def test_the_gpu_deployment_requests_a_gpu():
    deployment = next(yaml.safe_load_all((KUBERNETES / "gpu.yaml").read_text()))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    (device,) = services["gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]


def compose() -> list[str] | None:
    """The command of Docker Compose, as a plugin or on its own."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            done = subprocess.run([*command, "version"], capture_output=True)
            if done.returncode == 0:
                return command
    return None


@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_docker_compose_accepts_the_file(profile, tmp_path):
    command = compose()
    if command is None:
        pytest.skip("there is no Docker Compose here")
    arguments = ["-f", str(DOCKER / "compose.yaml"), "--profile", profile, "config"]
    run = subprocess.run(
        [*command, *arguments],
        env={**os.environ, "MODELS": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert list(yaml.safe_load(run.stdout)["services"]) == [profile]
