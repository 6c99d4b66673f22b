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
