"""Checks and measures the library on a GPU: one command, one JSON file, one table.

    python benchmarks/gpu_check.py [--device gpu|cpu] [--out FOLDER] [--quick]

layers    the conformance suite and the tests of both ways of dispatch: float32 and mixed precision,
          XLA
step      `fit_step.py`, sections marks and dispatch
reading   `reading.py`, as a multiple of the lists that a step consumes
export    generated logs, built, trained and exported; the export's answers on the device against
          those on the CPU

A part that fails does not end the others; the exit code is then 1. FOLDER has `gpu_check.json`,
`gpu_check.md` with the table of docs/performance.md, and the output of each part. `--device cpu
--quick` runs all of it on any machine at small sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
TESTS = ("tests/conformance", "tests/layers/test_dispatch.py")
# The marks of 2 CPU cores, to stand beside the GPU's (docs/performance.md).
ROWS = {
    "N=10 / one tower": "a step of N = 10 over that of one tower (by counting: 5)",
    "share of matmul peak": "share of the device's float32 matmul peak",
    "N=64 / N=10, B=128": "N = 64 over N = 10, 128 lists",
    "N=64 / N=10, B=32": "N = 64 over N = 10, 32 lists",
    "float32 / bfloat16": "float32 over bfloat16",
    "matmul, float32 / bfloat16": "the same for a plain matrix product",
    "auto / sorted": "`dispatch: auto` over `sorted`",
    "grouped / sorted": "`dispatch: grouped` over `sorted`",
    "grouped, XLA / sorted": "`dispatch: grouped`, compiled by XLA, over `sorted`",
}
_ANSWER = """
import sys
import numpy as np
import tensorflow as tf

model, records, answers = sys.argv[1:]
lists = list(tf.data.TFRecordDataset([records], "GZIP").take(64).as_numpy_iterator())
rank = tf.saved_model.load(model).signatures["rank"]
found = rank(inputs=tf.constant(lists, tf.string))
np.savez(answers, **{name: value.numpy() for name, value in found.items()})
"""


class Check:
    """Runs the parts in processes of their own.

    Args:
        device: `gpu`, or `cpu` to hide all GPUs.
        quick: whether sizes are small.
        out: folder of the results.
    """

    def __init__(self, device: str, quick: bool, out: Path):
        self.out = out
        self.quick = quick
        hidden = {"CUDA_VISIBLE_DEVICES": "-1"}
        # Several processes may share the GPU, so that none may take all of its memory.
        shared = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        self.on_device = hidden if device == "cpu" else shared
        self.on_cpu = hidden

    def run(self, log: str, *command: Any, env: Mapping[str, str] | None = None) -> None:
        """Runs a command of this Python; its output is appended to `FOLDER/LOG.log`."""
        with (self.out / f"{log}.log").open("a", encoding="utf-8") as output:
            subprocess.run(
                [sys.executable, *map(str, command)],
                check=True,
                cwd=HERE.parent,
                env={**os.environ, **(self.on_device if env is None else env)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def layers(self) -> dict[str, Any]:
        """The tests of the layers on the device."""
        chosen = ["-k", "ExpertTowers and groups or on_a_gpu"] if self.quick else []
        # TF32 keeps 10 bits of a float32 product, fewer than the tests' tolerances allow for.
        exact = {**self.on_device, "NVIDIA_TF32_OVERRIDE": "0"}
        pytest = ["-m", "pytest", "-p", "no:cacheprovider"]
        self.run("layers", *pytest, *TESTS, *chosen, env=exact)
        lines = (self.out / "layers.log").read_text(encoding="utf-8").splitlines()
        return {"passed": next(line.strip("= ") for line in lines if " passed" in line)}

    def step(self) -> dict[str, Any]:
        """Marks and ways of dispatch of a step of `fit`."""
        result = self.out / "fit_step.json"
        sections = ["--section", "marks", "--section", "dispatch"]
        self.run("step", HERE / "fit_step.py", *sections, "--json", result, *self._quick())
        return json.loads(result.read_text(encoding="utf-8"))

    def reading(self) -> dict[str, Any]:
        """Lists read a second, and how many times that is what a step of N = 10 consumes."""
        result = self.out / "reading.json"
        columns = 30 if self.quick else 300
        read = [HERE / "reading.py", "--columns", columns, "--json", result]
        self.run("reading", *read, *self._quick())
        compared = json.loads(result.read_text(encoding="utf-8"))
        rates = compared[f"{columns} numerics"]["lists_per_second"]
        step = json.loads((self.out / "fit_step.json").read_text(encoding="utf-8"))
        consumed = step["sizes"]["lists"] / step["marks"]["seconds"]["N=10"]["median"]
        return {
            "lists_per_second": rates,
            "consumed": round(consumed),
            "read / consumed": {k: round(v / consumed, 2) for k, v in rates.items()},
        }

    def export(self) -> dict[str, Any]:
        """Scores of an export on the device and on the CPU, for lists of the test split."""
        work = self.out / "work"
        shutil.rmtree(work, ignore_errors=True)
        logs, data, run = work / "logs", work / "data", work / "run"
        self._command("synth", "--out", logs, "--sessions", 300 if self.quick else 4000)
        schema = logs / "schema.yaml"
        self._command("build", "--input", logs / "logs-*", "--schema", schema, "--out", data)
        sizes = ("expert_hidden_dims=[8]", "num_experts=4", "top_k=2", "num_epochs=1")
        small = [word for size in sizes for word in ("--set", size)] if self.quick else []
        self._command("train", "--data", data, "--model", "adv_hsc_moe", "--out", run, *small)
        self._command("export", "--run", run, "--out", work / "models" / "shop")
        records = sorted(data.glob("test-*.tfrecord.gz"))[0]
        answers = {}
        for name, env in (("device", self.on_device), ("cpu", self.on_cpu)):
            file = work / f"{name}.npz"
            model = work / "models" / "shop" / "1"
            self.run("export", "-c", _ANSWER, model, records, file, env=env)
            with np.load(file) as saved:
                answers[name] = {key: saved[key] for key in saved.files}
        device, cpu = answers["device"], answers["cpu"]
        difference = float(np.max(np.abs(device["scores"] - cpu["scores"])[device["valid"]]))
        if not difference < 1e-3:
            raise ValueError(f"scores differ from the CPU's by up to {difference:g}")
        return {"lists": len(device["scores"]), "largest difference of a score": difference}

    def _command(self, *arguments: Any) -> None:
        self.run("export", "-m", "tfr_moe.cli", *map(str, arguments))

    def _quick(self) -> list[str]:
        return ["--quick"] if self.quick else []


def table(result: Mapping[str, Any]) -> str:
    """The marks as a table in Markdown, with the machine and the failed parts."""
    step = result.get("step", {})
    ratios = {**step.get("marks", {}), **step.get("dispatch", {})}
    lines = [f"{step.get('machine', {})}", "", "| | median | quartiles |", "|---|---|---|"]
    for key, words in ROWS.items():
        if key in ratios:
            low, middle, high = (ratios[key][name] for name in ("low", "median", "high"))
            lines.append(f"| {words} | {middle:.2f} | {low:.2f} to {high:.2f} |")
    for kind, times in result.get("reading", {}).get("read / consumed", {}).items():
        lines.append(f"| lists read ({kind}) over lists consumed | {times:.2f} | |")
    if "export" in result:
        most = result["export"]["largest difference of a score"]
        lines.append(f"| largest difference of an export's scores from the CPU's | {most:.1e} | |")
    lines += [f"\nfailed: {part}: {why}" for part, why in result["failed"].items()]
    return "\n".join(lines) + "\n"


def _has_gpu() -> bool:
    from tfr_moe._compat import tf

    return bool(tf.config.list_physical_devices("GPU"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--out", type=Path, default=Path("gpu-check"), help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    arguments = parser.parse_args()
    if arguments.device == "gpu" and not _has_gpu():
        parser.error("TensorFlow finds no GPU here; --device cpu runs the same without one")
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for log in out.glob("*.log"):
        log.unlink()
    check = Check(arguments.device, arguments.quick, out)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "layers": check.layers,
        "step": check.step,
        "reading": check.reading,
        "export": check.export,
    }
    result: dict[str, Any] = {"device": arguments.device, "failed": {}}
    for name, part in parts.items():
        print(f"{name}: {out / name}.log", flush=True)
        try:
            result[name] = part()
        except (subprocess.CalledProcessError, OSError, ValueError, LookupError) as error:
            result["failed"][name] = str(error)
        (out / "gpu_check.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        (out / "gpu_check.md").write_text(table(result), encoding="utf-8")
    print(table(result), end="")
    sys.exit(1 if result["failed"] else 0)


if __name__ == "__main__":
    main()
