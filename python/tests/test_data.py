"""Workloads, lists and topologies from memory are those of files."""

import pytest

import homa


def test_sizes_with_weights_are_the_table_of_a_file(tmp_path, small):
    path = tmp_path / "sizes.csv"
    path.write_text("size_bytes,cumulative_fraction\n100,0.75\n20000,1\n")
    of_file = homa.simulate(small, workload=str(path))
    assert homa.simulate(small, workload=homa.Sizes([20000, 100], [1, 3])).trace_hash == (
        of_file.trace_hash
    )
    observed = homa.Sizes([100, 20000, 100, 100])
    assert homa.simulate(small, workload=observed).trace_hash == of_file.trace_hash
    in_a_plan = {**small, "axes": {"traffic.workload": [observed, "w1"]}}
    assert len(homa.sweep(in_a_plan)) == 2


def test_arrays_and_frames_are_sequences(small):
    numpy = pytest.importorskip("numpy")
    pandas = pytest.importorskip("pandas")
    listed = homa.Sizes([100, 20000], [3, 1]).text
    assert homa.Sizes(numpy.array([100, 20000]), numpy.array([0.75, 0.25])).text == listed
    frame = pandas.DataFrame({"bytes": [100, 20000], "share": [3, 1]})
    assert homa.Sizes(frame["bytes"], frame["share"]).text == listed
    load = numpy.float64(0.5)
    assert homa.simulate(small, load=load).trace_hash == (homa.simulate(small, load=0.5).trace_hash)
    assert homa.simulate(small, seed=numpy.int64(3)).seed == 3


@pytest.mark.parametrize(
    ("sizes", "weights", "key"),
    [
        ([], None, "sizes"),
        ([100, 200], [1], "weights"),
        ([0], None, "sizes"),
        ([1.5], None, "sizes"),
        ([100], [-1], "weights"),
        ([100], [0], "weights"),
        (["w4"], None, "sizes"),
    ],
)
def test_sizes_that_are_none_are_refused(sizes, weights, key):
    with pytest.raises(homa.PlanError) as caught:
        homa.Sizes(sizes, weights)
    assert caught.value.key == key


def test_a_list_of_messages_is_simulated_whole():
    flows = {"src": [0, 1, 2], "dst": [1, 2, 3], "bytes": [500, 70000, 1], "start_ns": [0, 50, 90]}
    topology = {"kind": "single-switch", "hosts": 4}
    result = homa.simulate(flows=homa.Flows(flows), topology=topology)
    assert sorted(result.samples["bytes"]) == [1, 500, 70000]
    pandas = pytest.importorskip("pandas")
    framed = homa.Flows(pandas.DataFrame(flows))
    assert homa.simulate(flows=framed, topology=topology).trace_hash == result.trace_hash
    del flows["bytes"]
    with pytest.raises(homa.PlanError, match="needs a column `bytes`"):
        homa.Flows(flows)


def test_a_topology_is_a_table_of_links():
    links = {
        "from": ["h0", "h1", "h2", "left"],
        "to": ["left", "left", "right", "right"],
        "gbps": [10, 10, 10, 40],
        "delay_ns": [500, 500, 500, 250],
    }
    graph = homa.Graph(links)
    result = homa.simulate(topology=graph, messages=100, set={"slowdown": "idle"})
    assert set(result.samples["receiver"]) == {0, 1, 2}
    in_a_plan = {
        "scenario": {"fabric": {"shape": graph}, "slowdown": "idle", "stop": {"messages": 100}}
    }
    assert homa.simulate(in_a_plan).trace_hash == result.trace_hash


@pytest.mark.parametrize(
    ("column", "values", "row"),
    [
        ("start_ns", [0.001, 0.002], 0),
        ("src", [0, 1.2], 1),
        ("bytes", [100, 200.5], 1),
        ("dst", [float("nan"), 2], 0),
        ("bytes", [100, 0], 1),
        ("src", [0, -1], 1),
        ("src", ["0", 1], 0),
        ("start_ns", [0, None], 1),
    ],
)
def test_a_value_that_would_be_cut_is_named_by_column_and_row(column, values, row):
    frame = {"src": [0, 1], "dst": [1, 2], "bytes": [100, 200], "start_ns": [0, 10]}
    with pytest.raises(homa.PlanError, match=f"`flows`: column `{column}`, row {row} ") as caught:
        homa.Flows({**frame, column: values})
    assert caught.value.key == "flows"
    whole = homa.Flows({**frame, "start_ns": [0.0, 10.0]})
    assert whole.text == homa.Flows(frame).text


def test_start_times_may_be_durations_and_times():
    from datetime import datetime, timedelta

    frame = {"src": [0, 1], "dst": [1, 2], "bytes": [100, 200]}

    def starts(values):
        rows = homa.Flows({**frame, "start_ns": values}).text.split()[1:]
        return [int(row.split(",")[4]) for row in rows]

    assert starts([timedelta(microseconds=2), timedelta(0)]) == [2000, 0]
    assert starts([datetime(2026, 1, 2), datetime(2026, 1, 1)]) == [86_400 * 10**9, 0]
    with pytest.raises(homa.PlanError, match="row 1 "):
        starts([datetime(2026, 1, 1), 7])
    with pytest.raises(homa.PlanError, match="row 0 "):
        starts([timedelta(-1), timedelta(0)])
    numpy = pytest.importorskip("numpy")
    assert starts(numpy.array([1, 5], "timedelta64[us]")) == [1000, 5000]
    first = numpy.datetime64("2026-01-01T00:00:00.000000003", "ns")
    assert starts(numpy.array([first + 4, first])) == [4, 0]
    with pytest.raises(homa.PlanError, match="row 1 "):
        starts(numpy.array([1, "NaT"], "timedelta64[ns]"))
    pandas = pytest.importorskip("pandas")
    assert starts(pandas.to_timedelta([7, 0], unit="ns").to_series()) == [7, 0]
    stamps = [pandas.Timestamp(12, tz="UTC"), pandas.Timestamp(5, tz="UTC")]
    assert starts(pandas.Series(stamps)) == starts(stamps) == [7, 0]


def test_start_times_are_neither_cut_nor_guessed():
    from datetime import datetime, timezone

    numpy = pytest.importorskip("numpy")
    pandas = pytest.importorskip("pandas")
    frame = {"src": [0, 1], "dst": [1, 2], "bytes": [100, 200]}
    assert homa.Flows({**frame, "start_ns": numpy.array([3000, 0], "m8[ps]")}).text.endswith(",0\n")
    for start in (
        # NumPy would make 1, 0 and a year of 365.2425 days of these.
        numpy.array([0, 1500], "m8[ps]"),
        numpy.array([0, 2**62], "m8[s]"),
        [numpy.timedelta64(0, "s"), numpy.timedelta64(1, "Y")],
        numpy.array(["2026", "9999"], "M8[Y]"),
        pandas.Series(numpy.array(["2026-01-01", "9999-01-01"], "M8[s]")),
        [datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=timezone.utc)],
    ):
        with pytest.raises(homa.PlanError, match="`start_ns`, row 1 "):
            homa.Flows({**frame, "start_ns": start})


def test_sequences_of_any_library_are_taken(small):
    assert homa.Sizes(range(100, 103)).text == homa.Sizes([100, 101, 102]).text
    swept = homa.sweep({**small, "seeds": range(1, 3)})
    assert swept.summary["seed"] == [1, 2]
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"bytes": [100, 20000], "share": [3, 1]})
    assert homa.Sizes(frame["bytes"], frame["share"]).text == homa.Sizes([100, 20000], [3, 1]).text
    seeds = homa.sweep({**small, "seeds": polars.Series([1, 2])}).summary["seed"]
    assert seeds == [1, 2]


def test_a_table_of_another_simulator_is_read_by_its_path(small, tmp_path):
    file = tmp_path / "cdf.txt"
    file.write_text("0 0\n1000 40\n10000 80\n100000 95\n1000000 100\n")
    linear = homa.simulate(small, workload=file).outcome["size_table"]
    assert linear["mean_bytes"] == pytest.approx(38150, abs=0.01)
    assert "linear between points" in linear["form"]
    steps = homa.simulate(small, workload=f"steps:{file}").outcome["size_table"]
    assert steps["mean_bytes"] == pytest.approx(69400)


def test_a_link_that_is_none_is_named_by_column_and_row():
    links = {"from": ["h0", "h1"], "to": ["a", "a"], "gbps": [10, 10], "delay_ns": [500, 500]}
    for column, value in [("from", "a,b"), ("to", 7), ("gbps", "fast"), ("delay_ns", 0.5)]:
        with pytest.raises(homa.PlanError, match=f"column `{column}`, row 1"):
            homa.Graph({**links, column: [links[column][0], value]})
