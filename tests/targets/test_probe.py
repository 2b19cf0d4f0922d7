"""The probe of this host's processor, the file it is kept in, and the processors that are described."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from search_space.hardware import CpuRates, Hardware
from targets import registry
from targets.cpu import figures
from targets.cpu.caches import Caches, host_caches
from targets.cpu.descriptions import DESCRIPTIONS, get_description
from targets.cpu.figures import FiguresError
from targets.cpu.host import cycle_rates
from targets.cpu.probe import ProbeFigures, digits, probe
from targets.threads import allowed_cores

CPU = registry.get("cpu").limits
FIGURES = ProbeFigures(
    3.7e9, 2.36e11, 1.0, 1.0, 0.5, 4.0, 4.5, (1e11, 2e10, 1e10), (9e10, 1e10, 5e9), 1e-6, 5e-5, 2.0, 1.0, 6.0, 0.5, 7.0
)
PROCESSOR = (16, 32, (0, 1))


@pytest.fixture
def figures_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return figures.figures_path(*PROCESSOR)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands by which probes were started; each gives `FIGURES`."""
    started: list[list[str]] = []

    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        started.append(command)
        return subprocess.CompletedProcess(command, 0, json.dumps(dataclasses.asdict(FIGURES)), "")

    monkeypatch.setattr(figures.subprocess, "run", run)
    return started


def test_a_probe_finds_figures_that_a_processor_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = figures.probe_again(CPU.vector_bytes // 4, CPU.vector_registers, allowed_cores())
    assert 5e8 < found.clock_hz < 8e9
    assert found.fma in {n / 2 for n in range(1, 13)} and 1 <= found.fma_latency <= 12
    for rate, latency in ((found.dots, found.dot_latency), (found.byte_dots, found.byte_dot_latency)):
        assert 0.5 <= rate <= found.issue and 1 <= latency <= 16
    assert 0.5 <= found.stores <= found.issue <= 16 and 0.5 <= min(found.loads, found.elements) <= found.issue
    assert found.loads <= found.elements <= found.issue or found.disturbed
    assert found.one[0] >= found.one[1] and min(found.one) > 1e8
    assert all(each <= one for each, one in zip(found.each, found.one, strict=True)) or found.disturbed
    assert found.start_seconds > 0 and found.wake_seconds > 0
    lanes = CPU.vector_bytes // 4
    assert found.peak_flops == pytest.approx(found.clock_hz * found.fma * lanes * 2 * CPU.cores, rel=0.06)
    (file,) = tmp_path.rglob("*.json")
    assert figures.load(file) == found and file.stat().st_mode & 0o077 == 0


def test_a_probe_runs_in_a_process_of_its_own_that_ends_by_itself() -> None:
    before = len(os.listdir("/proc/self/task"))
    assert probe.__module__ == "targets.cpu.probe"
    figures.load_or_probe(CPU.vector_bytes // 4, CPU.vector_registers, allowed_cores())
    assert len(os.listdir("/proc/self/task")) <= before


def test_figures_are_measured_once_and_then_read(figures_file: Path, probes: list[list[str]]) -> None:
    assert figures.load_or_probe(*PROCESSOR) == FIGURES
    assert figures.load_or_probe(*PROCESSOR) == FIGURES
    (command,) = probes
    assert command[3:7] == ["16", "32", "2", str(figures.physical_cores((0, 1)))]
    assert command[7:] == [str(size) for size in host_caches().sizes]


def test_other_vectors_cores_and_processors_have_figures_of_their_own(
    figures_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {
        figures_file,
        figures.figures_path(8, 32, (0, 1)),
        figures.figures_path(16, 16, (0, 1)),
        figures.figures_path(16, 32, (0,)),
    }
    monkeypatch.setattr(figures, "processor_identity", lambda: {"model name": "another", "microcode": "0x2"})
    others.add(figures.figures_path(*PROCESSOR))
    monkeypatch.setattr(figures, "VERSION", figures.VERSION + 1)
    others.add(figures.figures_path(*PROCESSOR))
    assert len(others) == 6


def test_a_disturbed_probe_is_measured_again_after_an_hour(figures_file: Path, probes: list[list[str]]) -> None:
    disturbed = dataclasses.replace(FIGURES, disturbed=True)
    figures.save(disturbed, figures_file)
    assert figures.load_or_probe(*PROCESSOR) == disturbed and not probes
    long_ago = figures_file.stat().st_mtime - figures.DISTURBED_SECONDS - 1
    os.utime(figures_file, (long_ago, long_ago))
    assert figures.load_or_probe(*PROCESSOR) == FIGURES and len(probes) == 1
    os.utime(figures_file, (long_ago, long_ago))
    assert figures.load_or_probe(*PROCESSOR) == FIGURES and len(probes) == 1, (
        "one that nothing disturbed holds for good"
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 1, "figures": {"clock_hz": 1}}'])
def test_a_torn_or_foreign_file_is_measured_again(figures_file: Path, probes: list[list[str]], text: str) -> None:
    figures_file.parent.mkdir(parents=True)
    figures_file.write_text(text)
    with pytest.raises(FiguresError, match=str(figures_file)):
        figures.load(figures_file)
    assert figures.load_or_probe(*PROCESSOR) == FIGURES and len(probes) == 1


@pytest.mark.parametrize("name", ["clock_hz", "fma", "one", "start_seconds"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "4", True, None, [1.0, 2.0]])
def test_figures_that_are_no_positive_numbers_are_refused(figures_file: Path, name: str, value: object) -> None:
    data = figures.to_json(FIGURES)
    data["figures"][name] = [value] * 3 if name == "one" and not isinstance(value, list) else value
    figures_file.parent.mkdir(parents=True)
    figures_file.write_text(json.dumps(data))
    with pytest.raises(FiguresError, match=f"`{name}` must be a positive number, but got"):
        figures.load(figures_file)


def test_a_file_that_others_may_write_is_not_believed(figures_file: Path, probes: list[list[str]]) -> None:
    figures.save(dataclasses.replace(FIGURES, fma=9.0), figures_file)
    assert figures.load_or_probe(*PROCESSOR).fma == 9.0
    figures_file.chmod(0o666)
    assert figures.load_or_probe(*PROCESSOR) == FIGURES


def test_a_folder_that_cannot_be_made_costs_a_probe_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probes: list[list[str]]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert (
        figures.load_or_probe(*PROCESSOR) == FIGURES
        and figures.load_or_probe(*PROCESSOR) == FIGURES
        and len(probes) == 2
    )


def test_a_probe_that_fails_says_why(figures_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 3, "", "first\nno such instruction\n")
    monkeypatch.setattr(figures.subprocess, "run", lambda *given, **options: failed)
    with pytest.raises(RuntimeError, match="must end with code 0, but got 3: no such instruction"):
        figures.load_or_probe(*PROCESSOR)


def test_digits_round_to_two_of_them() -> None:
    assert [digits(x) for x in (2.345e9, 9.99, 0.0)] == [2.3e9, 10.0, 0.0] and digits(235.4e9, 3) == 2.35e11


def test_rates_are_by_the_cycle() -> None:
    rates = cycle_rates(FIGURES)
    assert rates.one == (27.0, 5.4, 2.7) and rates.each[2] == 1.4
    assert (rates.fma, rates.fma_latency, rates.stores, rates.start_seconds) == (1.0, 4.0, 0.5, 1e-6)


def test_hardware_of_this_host_is_what_was_probed() -> None:
    hardware = registry.get("cpu").hardware
    found = figures.load_or_probe(CPU.vector_bytes // 4, CPU.vector_registers, allowed_cores())
    assert (hardware.peak_flops, hardware.bandwidth) == (found.peak_flops, found.each[2] * CPU.cores)
    assert hardware.rates == cycle_rates(found) and hardware.ways == host_caches().ways[:2]


NO_PROBE = """
from search_space import te
from search_space.lower import lower
from targets import registry
from targets.cpu import figures, host

def never(*given):
    raise AssertionError("probed")

host.probed = figures.probed = figures.probe_again = never
import measure.executor, measure.worker
target = registry.get("cpu")
assert target.cache_bytes > 0
x = te.placeholder((8,), name="x")
y = te.compute((8,), lambda i: x[i] + 1.0, name="y")
target.load(target.build(lower(te.create_schedule(y.op).state)))
assert "hardware" not in vars(target)
"""


def test_building_and_running_need_no_probe() -> None:
    done = subprocess.run([sys.executable, "-c", NO_PROBE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def cache_folder(system: Path, index: int, **facts: str) -> None:
    folder = system / "cpu0" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, value in facts.items():
        (folder / name).write_text(f"{value}\n")


def test_caches_are_what_the_system_says(tmp_path: Path) -> None:
    cache_folder(tmp_path, 0, level="1", type="Data", size="48K", ways_of_associativity="12")
    cache_folder(tmp_path, 1, level="1", type="Instruction", size="64K", ways_of_associativity="8")
    cache_folder(tmp_path, 2, level="2", type="Unified", size="2048K", ways_of_associativity="16")
    cache_folder(tmp_path, 3, level="3", type="Unified", size="1G", ways_of_associativity="0")
    assert host_caches(tmp_path) == Caches((48 << 10, 2 << 20, 1 << 30), (12, 16, 16), ("system",) * 3)


def test_where_the_system_is_silent_others_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {188: 48 << 10, 189: 12, 191: 2 << 20, 192: 16, 194: 0, 195: 0}
    monkeypatch.setattr(os, "confstr", lambda name: "glibc 2.40")
    monkeypatch.setattr(os, "sysconf", told.__getitem__)
    found = host_caches(tmp_path)
    assert found == Caches((48 << 10, 2 << 20, 32 << 20), (12, 16, 16), ("library", "library", "usual"))


def test_cores_that_share_their_units_count_once(tmp_path: Path) -> None:
    for core, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        (tmp_path / f"cpu{core}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{core}" / "topology" / "thread_siblings_list").write_text(siblings)
    assert [figures.physical_cores(cores, tmp_path) for cores in ((0, 1, 2, 3), (0, 2), (1, 9))] == [2, 1, 2]


def test_a_named_processor_is_described_the_same_on_every_machine() -> None:
    haswell, genoa = registry.get("cpu:haswell").hardware, registry.get("cpu:znver4").hardware
    assert (haswell.l1_bytes, haswell.l2_bytes, haswell.ways) == (32 << 10, 256 << 10, (8, 8))
    assert (haswell.rates.fma, haswell.rates.fma_latency) == (2.0, 5.0)
    assert (genoa.rates.fma, genoa.rates.stores, genoa.ways) == (1.0, 0.5, (8, 8))
    assert haswell.peak_flops == genoa.peak_flops == 3e9 * 32 * CPU.cores, "both have units of 2 x 256 bits"
    assert registry.get("cpu:haswell").figures() is None


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_descriptions_are_of_possible_caches(name: str) -> None:
    of = get_description(name)
    assert of.sizes[0] < of.sizes[1] < of.sizes[2]
    for size, ways in zip(of.sizes, of.ways, strict=False):
        assert size % (ways * 64) == 0
    assert of.rates.issue >= of.rates.fma and of.rates.loads >= of.rates.stores


def test_a_processor_that_nobody_describes_is_a_usual_one() -> None:
    assert get_description("x86-64-v3").rates == CpuRates()


def test_hardware_with_rates_survives_json_and_old_files_stay_readable() -> None:
    plain = Hardware("cpu", 2, 64, 32, 49152, 1 << 21, 1 << 25, 3e11, 4e10, ("avx512f",))
    probed = dataclasses.replace(plain, rates=cycle_rates(FIGURES), clock_hz=3.7e9)
    for hardware in (plain, probed):
        assert Hardware.from_json(json.loads(json.dumps(hardware.to_json()))) == hardware
    assert "rates" not in plain.to_json() and "rates" in probed.to_json()
