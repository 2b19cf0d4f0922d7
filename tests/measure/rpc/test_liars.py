"""Workers that lie, as processes: their answers and they are refused, and no file suffers from them."""

from __future__ import annotations

import logging

import pytest

from measure.database import Database
from measure.errors import PoolError
from measure.fleet.pool import FleetPool
from measure.pool import Trial
from measure.provenance import Provenance
from measure.record import Record
from measure.rpc.jobs import read_greeting
from measure.rpc.provider import RpcProvider
from measure.rpc.settings import RpcAddress
from search_space import workloads
from tests.measure.fleet.endpoints import FakeBuilder, FakeDevice, FixedProvider
from tests.measure.helpers import record, trial
from tests.measure.rpc.liar import GREETING, liar
from tests.measure.rpc.processes import TOKEN, settings

TRUE = {"latencies": [0.01, 0.02, 0.03], "seconds": 0.02, "spread": 0.5, "max_error": 0.0, "span": [5.0, 5.1]}
LIES = [
    ({"latencies": [1e-15], "seconds": 1e-15}, "`latencies` must be finite and at least 1e-10 seconds, but got 1e-15"),
    ({"latencies": [-1.0], "seconds": -1.0}, "`latencies` must be finite and at least"),
    ({"latencies": [float("nan")], "seconds": float("nan")}, "`latencies` must be finite .* but got nan"),
    ({"latencies": [float("inf")], "seconds": float("inf")}, "`latencies` must be finite .* but got inf"),
    ({"seconds": 0.001}, "`seconds` must be the median of `latencies`, 0.02, but got seconds=0.001"),
    ({"seconds": None}, "`seconds` must be the median of `latencies`"),
    ({"latencies": [], "seconds": None}, "`latencies` must hold a sample where error=ok, but got none"),
    ({"latencies": [50.0], "seconds": 50.0}, r"`latencies` must lie within a call of .* s, but add up to 50 s"),
    ({"span": [0.0, 1e6]}, r"`span` must lie within a call of .* s, but got 1e\+06 s"),
    ({"span": [2.0, 1.0]}, "`span` must be a start and a later end"),
    ({"seconds": "fast"}, "`seconds` must be a number, but got seconds='fast'"),
    ({"latencies": 10**400}, "`latencies` must be a list of numbers"),
    ({"rotation_bytes": 10**30}, "`rotation_bytes` must be an integer of 64 bits"),
    ({"error": "splendid"}, "`error` must be one of ok, instantiation"),
    ({"error": "crash"}, "`latencies` and `seconds` must be empty where error=crash"),
    ({"message": "\ud800"}, "`message` must have at most 4000 characters of Unicode"),
    ({"metrics": {"cycles": float("nan")}}, "`metrics` must be finite numbers by name"),
]


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.WARNING)


@pytest.fixture(scope="module")
def address():
    with liar(TOKEN) as found:
        yield found


def make_pool(address, *endpoints, check="device"):
    """A pool whose builder is quick and one of whose devices is the liar."""
    provider = RpcProvider([RpcAddress(address, check=check)], settings())
    return FleetPool([FixedProvider(FakeBuilder("builder"), *endpoints), provider])


def make_lie(header):
    """The trial to which the liar answers so."""
    return trial(answer={"state": "done", "header": header})


@pytest.mark.parametrize(("lie", "sentence"), LIES)
def test_a_lie_ends_a_run_that_has_no_other_device_with_a_sentence_and_its_records_stay(
    address, lie, sentence, tmp_path
):
    path = tmp_path / "records.jsonl"
    with Database(path) as database:
        database.append(record())
    before = path.read_bytes()
    with make_pool(address) as pool, Database(path) as database:
        with pytest.raises(PoolError, match=f"what it says of a trial must be possible, but {sentence}") as caught:
            database.extend(
                [Record.of(result, Provenance(time=0.0)) for result in pool.run([make_lie({**TRUE, **lie})])]
            )
        assert address in str(caught.value) and "it is given nothing more in this run" in str(caught.value)
    assert path.read_bytes() == before
    with Database(path, readonly=True) as database:
        assert len(database) == 1 and not database.notes


def test_the_truth_is_believed(address, tmp_path):
    with make_pool(address) as pool, Database(tmp_path / "r.jsonl") as database:
        (result,) = pool.run([make_lie(TRUE)])
        database.append(Record.of(result, Provenance(time=0.0)))
        assert result.seconds == 0.02 and result.latencies == (0.01, 0.02, 0.03) and result.host["cpu"] == "fast"


def test_no_machine_is_faster_than_any_machine_can_be(address):
    """A product of 2e12 operations in a microsecond: nobody has measured that."""
    workload = workloads.matmul(m=10_000, n=10_000, k=10_000)
    step = {"step": "fake", "answer": {"state": "done", "header": {**TRUE, "latencies": [1e-6], "seconds": 1e-6}}}
    tried = Trial(workload.to_json(), "direct", [step], workload_key=workload.key, trace_key="x")
    with (
        make_pool(address) as pool,
        pytest.raises(PoolError, match="`seconds` must be at least 0.02 for this workload"),
    ):
        pool.run([tried])


def test_beside_an_honest_device_a_liar_gets_one_trial_and_the_run_goes_on(address, caplog):
    """The liar answers at once, so it would get most of the trials, and returns a moment after it was dismissed."""
    honest = FakeDevice("honest", host="board", seconds=0.05)
    lie = {"state": "done", "header": {**TRUE, "seconds": 9.0}}
    with make_pool(address, honest) as pool:
        results = pool.run([trial(place=number, answer=lie) for number in range(30)])
    assert all(result.ok and result.host["device"] == "honest" for result in results)
    assert caplog.text.count("was lost") == 1 and "must be the median" in caplog.text


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"state": "done"}, "`header` must be of type dict, but got header=None"),
        ({"state": "done", "header": [1]}, "`header` must be of type dict"),
        ([1], "must speak the protocol, but: a message's header must be a JSON object"),
        ("text", "must speak the protocol"),
    ],
)
def test_what_is_no_answer_at_all_is_refused_as_well(address, answer, sentence):
    with make_pool(address) as pool, pytest.raises(PoolError, match=sentence):
        pool.run([trial(answer=answer)])


def test_an_output_that_does_not_come_is_refused_where_the_client_checks(address):
    sentence = "an output must come with the times, but: an array must be described"
    with make_pool(address, check="client") as pool, pytest.raises(PoolError, match=sentence):
        pool.run([make_lie(TRUE)])


@pytest.mark.parametrize(
    ("greeting", "sentence"),
    [
        ({"description": {"cpu": "x" * 10_000}}, "`description` must have at most 8192 bytes of JSON, but got 10011"),
        ({"description": {"cpu": float("nan")}}, "`description` must be JSON"),
        ({"description": {"cpu": "\ud800"}}, "`description` must be JSON"),
        ({"description": {"cores": [2**70]}}, "`description` must hold integers of 64 bits"),
        ({"key": "board\x1b[2J"}, "`key` must be of characters that can be shown"),
        ({"name": "\ud800"}, "`name` must be of characters that can be shown"),
        ({"exclusive": 1}, "`exclusive` must be of type bool"),
    ],
)
def test_a_worker_that_cannot_say_what_it_is_never_joins(greeting, sentence):
    right = {**GREETING, "key": "", "session": "s"}
    assert read_greeting(right).name == "liar"
    with pytest.raises(PoolError, match=f"a worker must say what it is, but: {sentence}"):
        read_greeting({**right, **greeting})
