"""Tables: the program's columns, read by other libraries where they lie."""

import csv
import gc
import sys
from pathlib import Path

import pytest

import homa


@pytest.fixture
def result(small):
    return homa.simulate(small, workload="w2", scheme="homa")


def test_columns_are_those_of_the_files(tmp_path, small):
    out = tmp_path / "out"
    result = homa.simulate(small, out=out)
    with open(out / "slowdown.csv") as file:
        rows = list(csv.DictReader(file))
    assert result.buckets.column_names == list(rows[0])
    assert len(result.buckets) == len(rows)
    for name in ("slowdown_p99", "slowdown_p50_high", "max_bytes", "scheme"):
        theirs = [row[name] or None for row in rows]
        ours = result.buckets[name]
        kind = type(next(value for value in ours if value is not None))
        assert ours == [text and kind(text) for text in theirs], name
    assert dict(result.buckets)["messages"] == result.buckets["messages"]
    with pytest.raises(KeyError, match="slowdown_p50"):
        result.buckets["p50"]


def test_samples_are_the_messages_that_the_buckets_count(result):
    samples = result.samples
    assert len(samples) == result.summary["messages"] == 300
    assert set(samples["receiver"]) <= {0, 1, 2, 3}
    ordered = sorted(samples["slowdown"])
    assert ordered[round(0.5 * 300) - 1] == result.summary["slowdown_p50"]
    for low, high, count in zip(
        *(result.buckets[name] for name in ("min_bytes", "max_bytes", "messages")), strict=True
    ):
        assert sum(low <= size <= high for size in samples["bytes"]) == count


def test_pyarrow_reads_our_memory(result):
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table(result.buckets)
    assert table.num_rows == len(result.buckets)
    for name in table.column_names:
        assert table[name].to_pylist() == result.buckets[name], name
    assert table["slowdown_p99_high"].null_count > 0, "few messages bound no 99th percentile"
    address = [pyarrow.table(result.samples)["slowdown"].chunk(0).buffers()[1].address] * 2
    address[1] = pyarrow.table(result.samples)["slowdown"].chunk(0).buffers()[1].address
    assert address[0] == address[1], "each reader got a copy"
    table.validate(full=True)


def test_memory_lives_as_long_as_its_last_reader(small):
    pyarrow = pytest.importorskip("pyarrow")
    result = homa.simulate(small)
    expected = result.samples["latency_us"]
    column = pyarrow.table(result.samples)["latency_us"]
    del result
    gc.collect()
    assert column.to_pylist() == expected
    # A capsule that is never read is released, too.
    del column
    homa.simulate(small).samples.__arrow_c_stream__()
    gc.collect()


def test_pandas_has_columns_of_our_memory(result):
    pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    frame = result.samples.to_pandas()
    assert frame["slowdown"].tolist() == result.samples["slowdown"]
    ours = pyarrow.table(result.samples)["slowdown"].chunk(0).buffers()[1].address
    theirs = frame["slowdown"].array.__arrow_array__().chunk(0).buffers()[1].address
    assert ours == theirs
    buckets = result.buckets.to_pandas()
    assert buckets["max_bytes"].tolist() == result.buckets["max_bytes"]
    assert buckets["slowdown_p99_high"].isna().sum() > 0


def test_polars_has_columns_of_our_memory(result):
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    frame = result.samples.to_polars()
    assert frame["slowdown"].to_list() == result.samples["slowdown"]
    address = frame["slowdown"].to_numpy(allow_copy=False).__array_interface__["data"][0]
    ours = pyarrow.table(result.samples)["slowdown"].chunk(0).buffers()[1].address
    assert address == ours
    assert polars.DataFrame(result.buckets)["scheme"].to_list() == result.buckets["scheme"]


@pytest.mark.parametrize(
    ("method", "module", "extra"),
    [("to_pandas", "pandas", "pandas"), ("to_polars", "polars", "polars")],
)
def test_a_missing_library_is_named_with_its_extra(result, monkeypatch, method, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError) as caught:
        getattr(result.buckets, method)()
    assert str(caught.value) == f"{module} is missing: pip install 'homa-rpc[{extra}]'"
    extras = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert f"\n{extra} = [" in extras


def test_pandas_without_pyarrow_is_the_same_extra(result, monkeypatch):
    pytest.importorskip("pandas")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match=r"pyarrow is missing: .*'homa-rpc\[pandas\]'"):
        result.buckets.to_pandas()
