"""Training steps from C: losses and states of a saved step are those of Python, bit for bit."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import autotune
from autotune.training.executable import TrainingExecutable
from autotune.training.optimisers import Adam

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc, a C compiler")

ROOT = Path(__file__).parents[3]
FLAGS = ["-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-pthread"]
MAIN = """
#include "Net_training.h"

static int64_t targets[5][4];
static float rows[5][4][12];

int main(int count, char **argument) {
  Net_training step, again;
  FILE *file = fopen("batches", "rb");
  float loss;
  if (count != 3 || !file) return 2;
  if (fread(targets, 1, sizeof targets, file) + fread(rows, 1, sizeof rows, file) != sizeof targets + sizeof rows)
    return 3;
  fclose(file);
  if (!Net_training_open(&step, "nowhere", 1)) return 4;
  if (Net_training_open(&step, argument[1], 1) || Net_training_steps(&step) != 1) return 5;
  for (int i = 0; i < 3; i++) {
    if (Net_training_step(&step, targets[i], &rows[i][0][0], NET_LEARNING_RATE, &loss)) return 6;
    fwrite(&loss, sizeof loss, 1, stdout);
  }
  if (Net_training_write(&step, argument[2])) return 7;
  targets[4][3] = 5;
  if (Net_training_step(&step, targets[4], &rows[4][0][0], NET_LEARNING_RATE, &loss) != -2) return 8;
  targets[4][3] = -100;
  /* A second one goes on where the first one is. */
  if (Net_training_open(&again, argument[1], 1) || Net_training_read(&again, argument[2])) return 9;
  Net_training_close(&step);
  for (int i = 3; i < 5; i++) {
    if (Net_training_step(&again, targets[i], &rows[i][0][0], 0.5f, &loss)) return 10;
    fwrite(&loss, sizeof loss, 1, stdout);
  }
  if (Net_training_write(&again, argument[2])) return 11;
  if (Net_training_steps(&again) != 6 || !Net_training_read(&again, "batches")) return 12;
  Net_training_close(&again);
  Net_training_close(&again);
  return 0;
}
"""


class Net(nn.Module):
    """A network with buffers, masks, and a parameter whose name would end a comment of C."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(12, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)
        self.register_parameter("*/ int", nn.Parameter(torch.ones(8)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.first(x))) * self.get_parameter("*/ int")
        return self.last(nn.functional.dropout(hidden, 0.25))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def small() -> TrainingExecutable:
    torch.manual_seed(0)
    x, y = torch.randn(4, 12), torch.tensor([0, 1, 2, 4])
    return autotune.compile_training(Net(), x, y, optimiser=Adam(1e-2), precision="bfloat16", batches=2, threads=1)


def test_steps_from_c_are_those_of_python(small: TrainingExecutable, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    targets, rows = rng.integers(0, 5, (5, 4)), rng.standard_normal((5, 4, 12), np.float32)
    small.step(targets[0], rows[0])
    saved = small.save(tmp_path / "saved")
    (tmp_path / "batches").write_bytes(targets.tobytes() + rows.tobytes())
    (tmp_path / "main.c").write_text(MAIN)
    built = ["cc", "-std=c11", *FLAGS, f"-I{saved}", "main.c", str(saved / "network" / "Net.so")]
    subprocess.run([*built, f"-Wl,-rpath,{saved / 'network'}", "-o", "main"], cwd=tmp_path, check=True)
    out = subprocess.run(["./main", "saved", "new"], cwd=tmp_path, check=True, capture_output=True, timeout=60).stdout
    losses = [small.step(y, x) for y, x in zip(targets[:3], rows[:3], strict=True)]
    targets[4, 3] = -100
    losses += [small.step(y, x, learning_rate=0.5) for y, x in zip(targets[3:], rows[3:], strict=True)]
    np.testing.assert_array_equal(np.frombuffer(out, np.float32), np.float32(losses))
    written = (tmp_path / "new").read_bytes()
    assert written == b"".join(array.tobytes() for array in small.states.values())
    assert {"parameters", "mean", "square", "norm.running_mean", "gradients"} < small.states.keys()


def test_a_header_is_of_the_states_beside_it(small: TrainingExecutable, tmp_path: Path) -> None:
    small.save(tmp_path)
    (header,) = tmp_path.glob("*_training.h")
    assert f'#define NET_STATES "states-{small.steps}"' in header.read_text() and header.name == "Net_training.h"
    assert any(slot.axes for slot in small.slots.values())  # kernels read it transposed
    for name, slot in small.slots.items():
        memory = small.states["parameters"][slot.offset : slot.offset + slot.size].reshape(slot.stored_shape)
        axes = slot.axes or tuple(range(memory.ndim))
        np.testing.assert_array_equal(memory, small.parameters[name].transpose(axes))
        comment = f"     {slot.offset}: {name.replace('*/', '* /')}{[*slot.stored_shape]}"
        comment += f", its axes {', '.join(map(str, axes))}" if slot.axes else ""
        assert comment in header.read_text().replace(" */", "").splitlines()
    (tmp_path / "main.cpp").write_text('#include "Net_training.h"\n')
    for language in ("c", "c++") if shutil.which("g++") else ("c",):
        command = ["cc", *FLAGS, "-fsyntax-only", "-x", language, f"-I{tmp_path}", "main.cpp"]
        assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stderr == ""


def test_the_page_shows_a_program_that_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "training.md").read_text()
    section = page[page.index("### From C") :]
    program, command = re.findall(r"```c\n(.*?)```.*?```\n(cc .*?)```", section, re.DOTALL)[0]
    example = re.findall(r"```python\n(.*?)```", page[page.index("## Training steps") :], re.DOTALL)[0]
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        exec(compile(example, "training.md", "exec"), names)
        Path("train.c").write_text(program)
        subprocess.run(["sh", "-euc", command], check=True)
        out = subprocess.run(["./train"], check=True, capture_output=True, text=True, timeout=60).stdout
        step = autotune.load_training("runs/classifier")
        rows, labels = np.zeros((32, 20), np.float32), np.arange(32) % 5
        rows[np.arange(32), labels] = 1
        losses = [step.step(labels, rows) for _ in range(100)]
        assert [float(word) for word in out.split()] == [pytest.approx(losses[-1], abs=1e-6)]
        states = b"".join(array.tobytes() for array in step.states.values())
        assert Path("runs/classifier/after-110").read_bytes() == states and shlex.split(command)[0] == "cc"
