"""Search for the shipped database of schedules: `python -m benchmarks.schedules FOLDER --minutes 60`.

It searches layers of the package's own networks and the survey's, without networks that pools test with. Layers without
a schedule in the database get a few trials each. The fastest schedule of each is merged into
`autotune/tuner/database/shipped/cpu.jsonl`. FOLDER keeps exported models and records. It goes one network at a time: an
interruption loses the work on one network, and the same command resumes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from autotune.config import RunConfig
from autotune.run.workloads import tasks_of_any
from autotune.tuner.database import ScheduleDatabase
from autotune.tuner.database.entry import make_entry_key, schedule_lanes
from autotune.tuner.database.locations import shipped_file
from autotune.tuner.export import select_entries
from benchmarks.survey.models import load_models
from measure.database import Database
from targets import registry

OWN = (
    "resnet18", "resnet50", "mobilenet_v2", "squeezenet", "inception_v1", "inception_v2", "densenet121", "shufflenet",
    "bert_base", "alexnet", "vgg19",
)  # fmt: skip
"""Names of networks that the package knows by itself."""
SURVEY_MODELS = (
    "efficientnet_b0", "regnet_y_800mf", "convnext_tiny", "deit_tiny_patch16_224", "mnasnet1_0", "seresnet50",
    "vit_b_16", "ghostnet_100", "mobilenet_v3_small", "distilbert_base", "regnet_x_800mf", "resnext50_32x4d",
    "wide_resnet50_2", "shufflenet_v2_x1_0", "swin_t", "inception_v3", "repvgg_a0", "cspresnet50", "dla34", "dpn68",
    "tf_efficientnet_lite0", "mobilenetv4_conv_small", "efficientvit_b0", "fasternet_t0", "hgnetv2_b0",
    "hrnet_w18_small", "inception_v4", "lcnet_100", "mixer_s32_224", "mobilevit_s", "poolformer_s12", "pvt_v2_b0",
    "repghostnet_100", "repvit_m0_9", "res2net50_26w_4s", "rexnet_100", "selecsls42b", "skresnet18", "starnet_s1",
    "vovnet39a", "xception41", "minilm", "gpt2", "electra_small", "mobilebert", "t5_small_encoder", "llama_small",
    "vgg16_bn",
)  # fmt: skip
"""Names of models of the survey."""
TRIALS, STARTS, ROUNDS = 16, 4, 6
"""Candidates of each layer, those of them that like layers' schedules give, and bursts in which all take turns."""


def sources(folder: Path) -> Iterator[tuple[str, str]]:
    """Lists name and `model` of each network; networks of the survey are exported at their turn."""
    yield from ((name, name) for name in OWN)
    for name in SURVEY_MODELS:
        try:
            yield name, str(export_model(folder, name))
        except RuntimeError as error:
            sys.stderr.write(f"{error}\n")


def export_model(folder: Path, name: str) -> Path:
    """Returns the ONNX file of a model of the survey, which a process of its own writes if it is missing.

    Raises:
        RuntimeError: the export fails.
    """
    file = folder / "exports" / f"{name}.onnx"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "benchmarks.schedules", str(folder), "--export", name]
        if subprocess.run(command, check=False).returncode:
            raise RuntimeError(f"{name} was not exported")
    return file


def export(folder: Path, name: str) -> None:
    """Writes a model of the survey as ONNX, or nothing."""
    from benchmarks.survey.exports import EXPORTERS, make_model, write_onnx

    (model,) = (model for model in load_models() if model.name == name)
    file = folder / "exports" / f"{name}.onnx"
    partly = file.with_suffix(".part")
    write_onnx(*make_model(model, 0), partly, list(EXPORTERS))
    partly.rename(file)


def configuration(
    name: str, model: str, folder: Path, target: str, threads: int, database: Path, only: Sequence[str] | None
) -> dict[str, Any]:
    """Makes the configuration that collects the named layers of a network."""
    source: dict[str, Any] = {"network": model, **({} if only is None else {"only": list(only)})}
    return {
        "name": name,
        "target": target,
        "output": str(output(folder, target, threads) / name),
        "search": {"batch": TRIALS, "starts": STARTS, "database": str(database) if database.exists() else "none"},
        "measure": {"cache": "network", "threads": threads},
        "collect": {"programs": TRIALS, "random_share": 0.0, "rounds": ROUNDS, "sources": [source]},
    }


def output(folder: Path, target: str, threads: int) -> Path:
    """Returns the folder of records: one for each number of threads and processor name."""
    return folder / "_".join([*target.split(":")[1:], f"threads{threads}"])


def missing(config: RunConfig, database: ScheduleDatabase, threads: int) -> list[str]:
    """Lists names of a network's layers without a schedule in the database."""
    target = registry.get(config.target)
    lanes = schedule_lanes(target.hardware)
    return [
        task.name
        for task in tasks_of_any(config)
        if not database.exact(make_entry_key(task.workload, target.name, lanes, threads, "network"))
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Collects, network after network."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schedules", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no network is begun")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--target", default="cpu", help="such as cpu:haswell, for vectors of 256 bits")
    parser.add_argument("--export", help="write this model of the survey, and no more")
    options = parser.parse_args(arguments)
    if options.export:
        export(options.folder, options.export)
        return 0
    end, path = time.monotonic() + 60 * options.minutes, shipped_file("cpu")
    for name, model in sources(options.folder):
        if time.monotonic() >= end:
            break
        database = ScheduleDatabase.read(path) if path.exists() else ScheduleDatabase()
        of = (name, model, options.folder, options.target, options.threads, path)
        left = missing(RunConfig.model_validate(configuration(*of, None)), database, options.threads)
        if not left:
            continue
        file = options.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(configuration(*of, left)))
        start = time.monotonic()
        done = subprocess.run([sys.executable, "-m", "autotune", "collect", str(file), "--quiet"], check=False)
        if done.returncode:
            sys.stderr.write(f"{name} was not collected\n")
            continue
        records_path = output(options.folder, options.target, options.threads) / name / "records.jsonl"
        with Database(records_path, readonly=True) as records:
            found = select_entries(records, note=name)
        after = database.merge([found])
        after.write(path)
        sys.stderr.write(f"{name}: {len(left)} layers in {time.monotonic() - start:.0f} s, {len(after)} entries\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
