"""Every example in every docstring of tfr_moe, beam and serving runs and says what it shows."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.conformance.test_registry import all_modules

# Examples that are marked not to run, and why. Any other mark fails.
NOT_RUN = {
    "tfr_moe.serving.client.client": "sends requests to a server",
    "tfr_moe.serving.dev_server": "starts a server",
    "tfr_moe.serving.export.export": "exports a trained model",
}


@pytest.mark.smoke
def test_every_example_in_a_docstring_holds(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failures, marked, tried = [], set(), 0
    for module in all_modules():
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        examples = 0
        for test in doctest.DocTestFinder().find(module):
            runner.run(test, out=failures.append)
            examples += len(test.examples)
            if any(example.options.get(doctest.SKIP) for example in test.examples):
                marked.add(module.__name__)
        written = Path(module.__file__ or "").read_text(encoding="utf-8").count(">>> ")
        assert examples == written, f"{module.__name__}: examples that doctest does not see"
        tried += runner.tries
    assert not failures, "".join(failures)
    assert marked == set(NOT_RUN)
    assert tried > 60


def test_a_wrong_example_would_be_found():
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert doctest.DocTestRunner().run(test, out=lambda _: None).failed == 1
