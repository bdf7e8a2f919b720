"""Labels of TensorFlow Serving after publications, with a server that loads versions."""

import runpy
import subprocess
import sys

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from tests.serving.conftest import publish
from tests.serving.models import SHOP, scorer
from tfr_moe._compat import tf
from tfr_moe.serving.dev_server import DevServer
from tfr_moe.serving.export.signatures import build


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with the model `plain`."""
    root = tmp_path_factory.mktemp("models")
    module, signatures = build(scorer(), SHOP)
    tf.saved_model.save(module, str(root / "plain" / "1"), signatures=signatures)
    return root


def served(path):
    """The versions and labels of a configuration."""
    config = model_server_config_pb2.ModelServerConfig()
    [model] = text_format.Parse(path.read_text(), config).model_config_list.config
    assert model.name == "shop" and model.base_path == "/models/shop"
    return list(model.model_version_policy.specific.versions), dict(model.version_labels)


@pytest.fixture(scope="module")
def script(repository):
    return repository / "examples" / "daily" / "labels.py"


def test_labels_follow_the_versions(models, script, tmp_path, monkeypatch):
    shop, config = tmp_path / "served" / "shop", tmp_path / "models.config"
    publish(models / "plain" / "1", shop / "1")
    with DevServer(shop.parent, port=0, poll_seconds=0.05) as server:
        words = [script, shop, "--config", config, "--server", server.target]
        command = [*map(str, words), "--base-path", "/models/shop"]
        monkeypatch.setattr(sys, "argv", command)

        def move():
            runpy.run_path(str(script), run_name="__main__")
            return served(config)

        subprocess.run([sys.executable, *command], check=True, timeout=60)
        assert served(config) == ([1], {"stable": 1, "canary": 1})
        publish(models / "plain" / "1", shop / "2")
        assert move() == ([1, 2], {"stable": 1, "canary": 2})
        publish(models / "plain" / "1", shop / "3")
        assert move() == move() == ([2, 3], {"stable": 2, "canary": 3})
        (shop / "3").rename(shop / "retired-3")
        assert move() == ([1, 2], {"stable": 1, "canary": 2})


def test_labels_stay_until_the_server_has_the_version(models, script, tmp_path):
    shop, config = tmp_path / "served" / "shop", tmp_path / "models.config"
    publish(models / "plain" / "1", shop / "1")
    labels = runpy.run_path(str(script))
    base = labels["Path"]("/models/shop")
    with DevServer(shop.parent, port=0, poll_seconds=0.05) as server:
        labels["move_labels"](shop, config, server.target, base)
        (shop / "2").mkdir()  # copied in part: it cannot be loaded
        with pytest.raises(SystemExit, match="version 2 of shop is not available: labels stay"):
            labels["move_labels"](shop, config, server.target, base, seconds=0.5)
    assert served(config) == ([1, 2], {"stable": 1, "canary": 1})
