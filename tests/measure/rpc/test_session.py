"""A device programmed by hand: real kernels over the network, held against NumPy's answers."""

from __future__ import annotations

import numpy as np
import pytest

from measure.errors import ErrorClass, PoolError, TrialFailure
from measure.rpc.session import RpcSession
from search_space import workloads
from search_space.space import generate, make_program
from targets import registry
from tests.measure.rpc.processes import TOKEN, Process, settings, worker
from tests.targets.vta.candidates import draw

MATMUL = workloads.matmul(24, 40, 16)
CONV = workloads.conv2d_blocked(height=7, width=7, in_channels=16, out_channels=16, kernel=3, padding=1, relu=True)


def build_module(workload, target):
    machine = registry.get(target)
    sketch = generate(workload, machine.hardware).sketches[0]
    choices = draw(sketch, np.random.default_rng(0))
    return machine.build(make_program(workload, sketch.algorithm, sketch.trace(choices)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("session")


@pytest.fixture(scope="module")
def board(folder):
    with worker(folder, fake=False) as process:
        yield process


@pytest.fixture(scope="module")
def session(board, folder):
    with RpcSession.open(f"rpc://{board.address}", folder / "token") as session:
        yield session


@pytest.fixture(scope="module")
def matmul(session):
    return session.upload(build_module(MATMUL, "cpu"))


def test_given_inputs(session, matmul):
    inputs = MATMUL.make_inputs(3)
    rtol, atol = MATMUL.tolerance
    output = matmul.run(*inputs, threads=1)
    np.testing.assert_allclose(output, MATMUL.reference(*inputs), rtol=rtol, atol=atol)
    assert session.target == "cpu" and session.description["cores"] >= 1


def test_seeded_inputs_are_made_over_there(matmul):
    inputs = MATMUL.make_inputs(7)
    np.testing.assert_array_equal(matmul.run_seeded(MATMUL, 7, threads=1), matmul.run(*inputs, threads=1))


def test_it_is_timed_over_there(matmul):
    seconds = matmul.time_seeded(MATMUL, 0, iterations=20, threads=1)
    assert seconds.shape == (20,) and (seconds > 0).all() and np.isfinite(seconds).all()
    assert matmul.time(*MATMUL.make_inputs(0), iterations=3).shape == (3,)


def test_what_the_kernel_does_not_take_is_told(matmul):
    first, second = MATMUL.make_inputs(0)
    with pytest.raises(TrialFailure, match="must be float32 of shape") as caught:
        matmul.run(first.T, second)
    assert caught.value.error is ErrorClass.instantiation
    with pytest.raises(TrialFailure, match="must be given its 2 inputs"):
        matmul.run(first)
    with pytest.raises(TrialFailure, match="`iterations` must be 0 to"):
        matmul.time(first, second, iterations=-1)
    with pytest.raises(ValueError, match="`dtype` must be one of"):
        matmul.run(first.astype(object), second)


def test_a_module_that_is_none_fails_and_harms_nothing(session, matmul):
    garbage = session.upload(b"\x04\x00\x00\x00\x00\x00\x00\x00null and void")
    with pytest.raises(TrialFailure) as caught:
        garbage.run(np.zeros(3, np.float32))
    assert caught.value.error in (ErrorClass.instantiation, ErrorClass.unknown)
    assert matmul.run_seeded(MATMUL, 0).shape == MATMUL.output.shape


def test_the_simulator_is_programmed_the_same_way_and_outlives_a_restart(folder):
    inputs = CONV.make_inputs(1)
    with worker(folder, target="vta", fake=False) as first:
        session = RpcSession(first.address, settings(patience=20.0))
        kernel = session.upload(build_module(CONV, "vta"))
        np.testing.assert_array_equal(kernel.run(*inputs), CONV.reference(*inputs))
    with worker(folder, "--listen", first.address, target="vta", fake=False):
        np.testing.assert_array_equal(kernel.run(*inputs), CONV.reference(*inputs))
        seconds = kernel.time(*inputs, iterations=2)
        assert seconds[0] == seconds[1] > 0
        session.close()
    session.close()
    with pytest.raises(PoolError, match="a session must be open to work"):
        kernel.run(*inputs)


def test_a_tracker_is_no_device(folder):
    process = Process(folder, "tracker")
    try:
        with pytest.raises(PoolError, match="`place` must be that of a worker, but .* is a tracker"):
            RpcSession.open(f"rpc://{process.address}", folder / "token")
    finally:
        process.end()


def test_nobody_there(folder):
    with pytest.raises(PoolError, match="a device must answer"):
        RpcSession("127.0.0.1:9", settings())
    with pytest.raises(ValueError, match="`url` must be of one worker, but got 2"):
        RpcSession.open("rpc://a:1,rpc://b:2", folder / "token")
    assert (folder / "token").read_text().strip() == TOKEN
