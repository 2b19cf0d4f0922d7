"""The VTA as a target of the tuner: by name, built, loaded, run, timed, measured and tuned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import autotune
from autotune.cli.app import app
from autotune.config import Search
from autotune.tuner.search.base import NoLegalSchedule
from measure.errors import ErrorClass
from measure.executor import KernelExecutor
from measure.pool import Trial
from measure.timing import TimingPolicy
from measure.wire import unpack
from measure.worker import Runner, _outcome
from search_space import workloads
from targets import registry
from targets.base import BuildError, Module, RunError
from targets.vta.hardware import PYNQ, ConfigurationError, VtaHardware
from targets.vta.isa import COLUMN, LOAD, WGT, decode, decode_table, encode_table
from targets.vta.kernel import VtaBound, instruction_words
from targets.vta.target import MOST_NESTS, get_target
from tests.targets.vta.assembly import parse_stream
from tests.targets.vta.candidates import build_candidate, draw, sketches

CONV = workloads.conv2d_blocked(6, 6, 32, 32, padding=1, relu=True)


@pytest.fixture(scope="module")
def module() -> Module:
    target = get_target("vta")
    sketch = sketches(CONV, target)[0]
    return build_candidate(CONV, sketch, draw(sketch, np.random.default_rng(0)), target)


def change_field(module: Module, name: str, value: int, opcode: int) -> Module:
    """The module with a field of its last instruction of that opcode set."""
    table = decode_table(instruction_words(module), PYNQ)
    table[np.flatnonzero(table[:, 0] == opcode)[-1], COLUMN[name]] = value
    words = encode_table(table, PYNQ).tobytes()
    return replace(module, object_code=words + module.object_code[len(words) :])


def test_designs_by_name(tmp_path: Path) -> None:
    assert registry.get("vta") is registry.get("vta") and get_target("vta:pynq").vta == PYNQ
    blocks = get_target("vta:2x4x8")
    assert (blocks.vta.batch, blocks.vta.block_in, blocks.vta.block_out) == (2, 4, 8)
    assert blocks.hardware.features == ("gemm_tile:2x8x4",) and blocks.name == "vta:2x4x8"
    file = tmp_path / "fast.json"
    file.write_text(json.dumps({"name": "fast", "clock_hz": 3e8}))
    fast = get_target(f"vta:{file}")
    assert fast.hardware.peak_flops == 3 * get_target("vta").hardware.peak_flops == 3 * 51.2e9
    assert dict(fast.hardware.memories) == {"input": 1 << 15, "weight": 1 << 18, "accumulator": 1 << 17}


@pytest.mark.parametrize(
    ("design", "spec"),
    [
        (PYNQ, "vta"),
        (VtaHardware(log_inp_buffer=13, clock_hz=3e8), "vta:log_inp_buffer=13,clock_hz=300000000.0"),
        (VtaHardware(name="small", log_acc_buffer=15), "vta:name=small,log_acc_buffer=15"),
        (PYNQ.with_blocks(1, 32, 32), None),
    ],
)
def test_a_design_has_a_name_that_any_process_makes_it_from(design: VtaHardware, spec: str | None) -> None:
    assert spec in (None, design.spec)
    assert get_target(design.spec).vta == design
    assert registry.target_name(design) == registry.target_name(design.spec) == design.spec


def test_a_name_that_could_not_be_told_from_fields_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="`name` must be of letters, digits, _ and - .*, but got name='a,b'"):
        _ = VtaHardware(name="a,b").spec
    with pytest.raises(ValueError, match="`target` must be a name, or a design such as VtaHardware, but got target=3"):
        registry.target_name(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "content", "message"),
    [
        ("vta:zynq", None, "must be followed by pynq, BxIxO, FIELD=VALUE or a .json file, but got vta:zynq"),
        ("vta:log_inp_buffer=13,clock=1", None, "must have keys among .*, but got 'clock'"),
        ("vta:log_inp_buffer=", None, "a design must be FIELD=NUMBER,FIELD=NUMBER, but got 'log_inp_buffer='"),
        ("vta:log_inp_buffer=40", None, "`log_inp_buffer` must hold at least one element"),
        ("vta:1x3x16", None, "`block_in` must be a power of two, but got block_in=3"),
        ("vta:none.json", None, "must name a readable file, but got vta:none.json: No such file"),
        ("vta:FILE", '{"clock": 1}', "must have keys among"),
        ("vta:FILE", "[1]", "FILE"),
        ("vta:FILE", "{", "FILE: a design must be JSON, but it ends at line 1, column 2: "),
    ],
)
def test_designs_that_are_none(spec: str, content: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "design.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=message.replace("FILE", "design.json")):
        get_target(spec.replace("FILE", str(file)))


def test_a_module_survives_its_bytes_and_shows_its_instructions(module: Module) -> None:
    again = Module.from_bytes(module.to_bytes())
    assert again.object_code == module.object_code and again.metadata == module.metadata
    text = get_target("vta").assembly(again)
    assert parse_stream(text) == decode(instruction_words(module), PYNQ)
    assert "# weight: int8 [2, 2, 3, 3, 16, 16] at byte " in text and "push_prev" in text


def test_a_kernel_writes_its_outputs_in_place(module: Module) -> None:
    kernel, inputs = get_target("vta").load(module), CONV.make_inputs(3)
    output = np.empty(CONV.output.shape, np.int8)
    kernel(*inputs, output)
    np.testing.assert_array_equal(output, CONV.reference(*inputs))


def test_a_bound_kernel_is_timed_by_simulated_cycles(module: Module) -> None:
    bound = get_target("vta").load(module).bind(CONV.make_inputs(0))
    assert isinstance(bound, VtaBound) and bound.deterministic and bound.copies == 1
    assert bound.run() is not None and np.may_share_memory(bound.run(), bound.run())
    told = bound.metrics()
    np.testing.assert_array_equal(bound.time(3), np.full(3, told["cycles"] / 100e6))
    products = 6 * 6 * 2 * 2 * 9
    assert products <= told["gemm_utilisation"] * told["cycles"] <= products * 1.5
    assert 0 < told["gemm_utilisation"] < told["gemm_bound"] < 1 and 0 < told["port_utilisation"] < 1
    assert told["instructions"] == len(instruction_words(module))


def test_inputs_of_another_shape_are_refused(module: Module) -> None:
    kernel, inputs = get_target("vta").load(module), CONV.make_inputs(0)
    with pytest.raises(RunError, match=r"must be given its 3 inputs \(.*\), but got 2"):
        kernel.bind(inputs[:2])
    with pytest.raises(RunError, match=r"`weight` must be int8 of shape \(2, 2, 3, 3, 16, 16\), but got uint8"):
        kernel.bind([inputs[0], inputs[1].view(np.uint8), inputs[2]])


def test_streams_that_break_a_rule_are_refused(module: Module) -> None:
    target = get_target("vta")
    with pytest.raises(RunError, match="must keep VTA's rules, but instruction"):
        target.load(change_field(module, "dram_base", 1 << 30, opcode=1))
    with pytest.raises(RunError, match="bytes of micro-operations"):
        target.load(replace(module, object_code=module.object_code[:-4]))
    with pytest.raises(RunError, match="must keep VTA's rules, but .* the store module waits for ever"):
        target.load(make_deadlock(module))


def make_deadlock(module: Module) -> Module:
    """The last store waits for a token that nobody gives."""
    table = decode_table(instruction_words(module), PYNQ)
    waiting = np.flatnonzero((table[:, 0] == 1) & (table[:, COLUMN["pop_prev"]] == 1))[-1]
    giving = np.flatnonzero(table[:waiting, COLUMN["push_next"]] == 1)
    giver = [index for index in giving if table[index, 0] in (2, 4)][-1]
    table[giver, COLUMN["push_next"]] = 0
    words = encode_table(table, PYNQ).tobytes()
    return replace(module, object_code=words + module.object_code[len(words) :])


def test_a_program_that_nobody_would_wait_for_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    target = get_target("vta")
    sketch = sketches(CONV, target)[0]
    choices = draw(sketch, np.random.default_rng(0))
    monkeypatch.setattr("targets.vta.verify.MOST_MULTIPLICATIONS", 256 * 100)
    with pytest.raises(BuildError, match="must execute at most 100 micro-operations, but got"):
        build_candidate(CONV, sketch, choices, target)


# ------------------------------------------------------------------ measured and tuned
def outcome(module: Module) -> dict[str, object]:
    """Returns a worker's header for a module."""
    sketch = sketches(CONV, get_target("vta"))[0]
    trial = Trial.of(CONV, "direct", sketch.trace(draw(sketch, np.random.default_rng(0))), target="vta")
    runner = Runner(KernelExecutor(), 1 << 30)
    header = _outcome(
        runner,  # type: ignore[arg-type]
        {"trial": trial.to_json(), "timing": TimingPolicy().to_json()},
        module.to_bytes(),
        lambda: None,
    )
    return dict(unpack(header)[0])


def test_a_worker_simulates_once_and_keeps_the_figures(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    run = VtaBound.run
    monkeypatch.setattr(VtaBound, "run", lambda self, threads=None: (runs.append(1), run(self))[1])
    found = outcome(module)
    assert found["spread"] == 0 and len(found["latencies"]) == 1 and len(runs) == 1  # type: ignore[arg-type]
    assert found["metrics"]["cycles"] == pytest.approx(found["seconds"] * 100e6)  # type: ignore[index, operator]


def test_a_bad_stream_is_a_record_of_a_failure(module: Module) -> None:
    assert outcome(make_deadlock(module))["error"] == ErrorClass.crash
    wrong = outcome(change_field(module, "imm", 5, opcode=4))
    assert wrong["error"] == ErrorClass.wrong_output
    assert outcome(change_field(module, "dram_base", 1 << 30, opcode=1))["error"] == ErrorClass.crash


def test_what_an_earlier_stream_left_on_the_chip_is_of_no_use(module: Module) -> None:
    """The weights are loaded by a stream before; this one loads none."""
    table = decode_table(instruction_words(module), PYNQ)
    loads = (table[:, 0] == LOAD) & (table[:, COLUMN["memory"]] == WGT)
    table[loads, COLUMN["x_size"]] = 0
    words = encode_table(table, PYNQ).tobytes()
    assert "error" not in outcome(module)
    idle = outcome(replace(module, object_code=words + module.object_code[len(words) :]))
    assert idle["error"] == ErrorClass.wrong_output


def test_a_stream_that_writes_to_more_than_its_output_is_wrong(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    run = VtaBound.run

    def spoiling(self: VtaBound, threads: int | None = None) -> object:
        output = run(self)
        self.dram[self.kernel.module.metadata["places"]["weight"] + 3] ^= 1
        return output

    monkeypatch.setattr(VtaBound, "run", spoiling)
    found = outcome(module)
    assert found["error"] == ErrorClass.wrong_output
    assert "a stream must write to its output alone, but it changed 1 bytes" in str(found["message"])


def test_tuning_finds_a_schedule_that_keeps_the_accelerator_busy() -> None:
    workload = workloads.conv2d_blocked(14, 14, 64, 64, padding=1, relu=True)
    result = autotune.tune(workload, target="vta", trials=24, search=Search(batch=8))
    assert result.best is not None and result.errors == {}
    told = result.best.metrics
    assert result.summary()["metrics"] == dict(told)
    assert told["cycles"] == pytest.approx(result.best_seconds * 100e6)
    inputs = workload.make_inputs(5)
    np.testing.assert_array_equal(result.kernel(*inputs), workload.reference(*inputs))
    every = [record.metrics["cycles"] for record in result.records if record.ok]
    assert told["cycles"] == min(every) and len(set(every)) > 1


def test_a_design_is_tuned_as_it_is_given() -> None:
    workload = workloads.conv2d_blocked(8, 8, 32, 32)
    design = replace(PYNQ, log_acc_buffer=13)
    result = autotune.tune(workload, target=design, trials=4, search=Search(batch=4))
    assert result.target == "vta:log_acc_buffer=13" and {record.target for record in result.records} == {result.target}
    assert dict(result.hardware.memories)["accumulator"] == 1 << 13
    assert result.best is not None and VtaHardware.from_json(result.module.metadata["hardware"]) == design


@pytest.mark.parametrize(
    "workload",
    [
        workloads.matmul(16, 16, 16),
        workloads.elementwise("relu", (4, 16)),
        workloads.conv2d_blocked(4, 4, 16, 16, block=(1, 8, 8)),
        workloads.softmax(4, 16),
    ],
    ids=str,
)
def test_what_the_accelerator_has_no_instruction_for_has_no_schedule(workload: workloads.Workload) -> None:
    with pytest.raises(NoLegalSchedule, match="there is no sketch for it on this target"):
        autotune.tune(workload, target="vta", trials=1)


def test_populations_leave_out_streams_that_are_far_too_long() -> None:
    workload = workloads.conv2d_blocked(56, 56, 64, 64, padding=1)
    target = get_target("vta")
    for sketch in sketches(workload, target):
        rows = np.stack([np.zeros(1, np.int32) for _ in sketch.groups], 1)  # tiles of one pixel
        assert not sketch.legal(rows)[0] and "instructions" in sketch.violations(rows)
    assert target.hardware.most_nests == MOST_NESTS


def test_the_command_line_prints_instructions(tmp_path: Path) -> None:
    config = tmp_path / "conv.yaml"
    config.write_text(
        "target: vta\nworkload: {operator: conv2d_blocked, height: 6, width: 6, in_channels: 32, out_channels: 32}\n"
    )
    ran = CliRunner().invoke(app, ["lower", str(config)])
    assert ran.exit_code == 0, ran.output
    for part in ("== schedule", "== program", "== assembly", "GEMM.RESET", "STORE.OUT", "; pop_prev", "FINISH"):
        assert part in ran.output
    assert "== llvm" not in ran.output
