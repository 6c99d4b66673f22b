"""What a worker of a process pool, Dask or joblib returns is pickled: results come back whole."""

import copy
import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest

import homa


def run(seed):
    """What a worker runs: at the top of its module, so that it can be found by name."""
    plan = {
        "scenario": {
            "stop": {"messages": 100},
            "fabric": {"shape": {"kind": "single-switch", "hosts": 4}},
            "measures": {"ledger": True},
        }
    }
    return homa.simulate(plan, seed=seed)


def same(one, other):
    """Whether two results say the same."""
    for table in ("buckets", "samples", "ledger"):
        ours, theirs = getattr(one, table), getattr(other, table)
        assert dict(ours) == dict(theirs), table
        assert len(ours) == len(theirs)
    assert one.summary == other.summary
    assert one.outcome == other.outcome
    assert (one.plan, one.charts, repr(one)) == (other.plan, other.charts, repr(other))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_result_comes_back_with_its_tables(protocol):
    result = run(1)
    # Once before anything was looked at, once after.
    for _ in range(2):
        same(pickle.loads(pickle.dumps(result, protocol)), result)
    same(copy.copy(result), result)
    same(copy.deepcopy(result), result)


def test_a_table_comes_back_as_it_was():
    samples, buckets = run(1).samples, run(1).buckets
    for table in (samples, buckets):
        again = pickle.loads(pickle.dumps(table))
        assert type(again) is homa.Table
        assert dict(again) == dict(table)
        assert again.column_names == table.column_names
    pyarrow = pytest.importorskip("pyarrow")
    again = pyarrow.table(pickle.loads(pickle.dumps(buckets)))
    again.validate(full=True)
    assert again.equals(pyarrow.table(buckets))


def test_a_damaged_table_is_refused():
    rows, columns = run(1).buckets.__getnewargs__()
    name, kind, values, beside = next(column for column in columns if column[1] == "text")
    for damaged in [
        (name, kind, values, beside[:-8]),
        (name, kind, values[:-1], beside),
        (name, kind, b"\xff" * len(values), beside),
        (name, "integer", values, b""),
        (name, "real", bytes(8 * rows), bytes(rows)),
        (name, "other", values, beside),
    ]:
        with pytest.raises(ValueError, match="damaged"):
            homa.Table(rows, [damaged])


def test_workers_that_are_spawned_return_results():
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawned) as pool:
        there, here = pool.submit(run, 3).result(timeout=120), run(3)
    # Time and memory are of each process.
    assert there.trace_hash == here.trace_hash
    assert dict(there.buckets) == dict(here.buckets)
    assert dict(there.samples) == dict(here.samples)


def test_a_sweep_comes_back_without_its_folder(small):
    sweep = homa.sweep({**small, "seeds": [1, 2]})
    again = pickle.loads(pickle.dumps(sweep))
    folder, tables = sweep.folder, [dict(sweep.summary), dict(sweep.buckets)]
    assert len(again) == 2
    del sweep
    assert not os.path.exists(folder), "the copy kept the temporary folder"
    assert [dict(again.summary), dict(again.buckets)] == tables
    assert again.folder == folder
    assert again.charts


def test_what_goes_into_a_plan_comes_back(small):
    sizes = pickle.loads(pickle.dumps(homa.Sizes([100, 200])))
    assert homa.simulate(small, workload=sizes).summary["messages"] == 300
    with pytest.raises(homa.PlanError) as caught:
        homa.simulate(scheme="hom")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.key, again.allowed, str(again)) == (
        caught.value.key,
        caught.value.allowed,
        str(caught.value),
    )
