"""Moves TensorFlow Serving's labels: `canary` to the newest version, `stable` to the one before.

    python labels.py work/models/shop --config models.config --server localhost:8500

The server reads `models.config` again by itself (--model_config_file_poll_wait_seconds) and does
not move a label to a version that is not available. So the newest version is served first, beside
those that have labels; when the server says that it is AVAILABLE, the labels move, and older
versions are unloaded. After `tfr-moe publish --rollback` the same command moves the labels back.
The same command continues where it was killed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from tfr_moe.serving.client import RankingClient
from tfr_moe.serving.versions import versions_of

Config = model_server_config_pb2.ModelServerConfig


def config_of(name: str, base: Path, versions: Sequence[int], labels: Mapping[str, int]) -> Config:
    """A configuration that serves these versions of one model, under these labels."""
    config = Config()
    model = config.model_config_list.config.add(
        name=name, base_path=str(base), model_platform="tensorflow"
    )
    model.model_version_policy.specific.versions.extend(versions)
    model.version_labels.update(labels)
    return config


def labels_in(path: Path) -> dict[str, int]:
    """The labels of a configuration of one model; none if there is no file."""
    if not path.is_file():
        return {}
    config = text_format.Parse(path.read_text(encoding="utf-8"), Config())
    return dict(config.model_config_list.config[0].version_labels)


def write(config: Config, path: Path) -> None:
    """Writes a configuration whole, or not at all."""
    partial = path.with_name(f".{path.name}")
    partial.write_text(text_format.MessageToString(config), encoding="utf-8")
    os.replace(partial, path)


def wait_for(server: str, name: str, version: int, seconds: float) -> None:
    """Waits until the server has the version; ends with 1 if it does not come."""
    end = time.monotonic() + seconds
    with RankingClient(server, name) as client:
        while (version, "AVAILABLE") not in [(v.version, v.state) for v in client.status()]:
            if time.monotonic() > end:
                sys.exit(f"{server}: version {version} of {name} is not available: labels stay")
            time.sleep(1)


def move_labels(model: Path, path: Path, server: str, base: Path, seconds: float = 300.0) -> None:
    """Serves the two newest versions of a model and labels them."""
    newest = versions_of(model)[-2:]
    labels = {name: n for name, n in labels_in(path).items() if (model / str(n)).is_dir()}
    write(config_of(model.name, base, sorted({*newest, *labels.values()}), labels), path)
    wait_for(server, model.name, newest[-1], seconds)
    write(config_of(model.name, base, newest, {"stable": newest[0], "canary": newest[-1]}), path)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="folder of the model's versions")
    parser.add_argument("--config", type=Path, required=True, help="the server's models.config")
    parser.add_argument("--server", required=True, help="HOST:PORT of its gRPC")
    parser.add_argument("--base-path", type=Path, help="the folder as the server sees it")
    options = parser.parse_args()
    base = options.base_path or options.model.resolve()
    move_labels(options.model, options.config, options.server, base)


if __name__ == "__main__":
    main()
