"""One simulation: the numbers of the program, errors that name the key, Ctrl-C, progress."""

import base64
import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

import homa
from homa import _show


def test_a_simulation_is_that_of_the_program(small, program):
    result = homa.simulate(small, scheme="homa", workload="w2", load=0.5, seed=7)
    args = ["--scheme", "homa", "--workload", "w2", "--load", "0.5", "--seed", "7"]
    shape = 'fabric.shape={ kind = "single-switch", hosts = 4 }'
    args += ["--messages", "300", "--set", shape, "--format", "json"]
    theirs = json.loads(program("sim", *args))
    assert result.trace_hash == theirs["trace_hash"]
    assert result.seed == theirs["seed"] == 7
    # What a run cost is no result.
    costs = ["cpu_seconds", "hops_per_cpu_second", "peak_rss_bytes"]
    for key in set(theirs) - set(costs):
        assert result.outcome[key] == theirs[key], key
    assert set(result.outcome) == set(theirs)


def test_the_summary_has_what_a_run_is_judged_by(small):
    result = homa.simulate(small, workload="w1")
    assert result.summary["messages"] == 300
    assert result.summary["slowdown_p99"] == result.outcome["slowdown"]["p99"]
    assert result.summary["wasted_bandwidth"] is None
    assert "300 messages" in repr(result)
    assert result.ledger is None


def test_the_resolved_plan_gives_the_same_packets(tmp_path, small):
    first = homa.simulate(small, load=0.6)
    (tmp_path / "plan.toml").write_text(first.plan)
    again = homa.simulate(tmp_path / "plan.toml")
    assert again.trace_hash == first.trace_hash
    assert homa.simulate(small, load=0.6, seed=2).trace_hash != first.trace_hash


def test_a_plan_may_be_a_file(tmp_path, small):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[scenario]\nstop.messages = 300\nfabric.shape = {kind = "single-switch", hosts = 4}\n'
    )
    assert homa.simulate(path).trace_hash == homa.simulate(small).trace_hash
    path.write_text("[scenario]\n\nschema = 3\n")
    with pytest.raises(homa.PlanError) as caught:
        homa.simulate(path)
    assert (caught.value.file, caught.value.line) == (str(path), 3)
    assert caught.value.key == "scenario.schema"
    with pytest.raises(FileNotFoundError):
        homa.simulate(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("wrong", "key", "allowed"),
    [
        ({"scheme": "hama"}, "scheme", "homa-paper"),
        ({"set": {"load.basis": "bits"}}, "load.basis", "payload"),
        ({"set": {"load.fracton": 0.5}}, "load.fracton", "fraction"),
        ({"load": -1.0}, "load.fraction", None),
        ({"load": 80}, "load.fraction", None),
        ({"set": {"options.mtu": 100}}, "options.mtu", None),
        ({"workload": "w9"}, "traffic.workload", None),
        ({"load": float("nan")}, "load", None),
        ({"load": "half"}, "load", None),
        ({"messages": -1}, "messages", None),
        ({"messages": 1.5}, "messages", None),
        ({"seed": 1 << 63}, "seed", None),
        ({"workload": 1000}, "workload", None),
    ],
)
def test_a_mistake_names_its_key_and_what_is_allowed(wrong, key, allowed):
    with pytest.raises(homa.PlanError) as caught:
        homa.simulate(**wrong)
    assert caught.value.key == key, str(caught.value)
    assert f"`{key}`" in str(caught.value)
    assert allowed is None or allowed in caught.value.allowed, caught.value.allowed
    assert isinstance(caught.value, ValueError)


def test_a_load_in_per_cent_is_answered_with_the_share():
    for wrong in ({"load": 80}, {"set": {"load.fraction": 80}}):
        with pytest.raises(homa.PlanError, match=r"above 0 and below 10: 0\.8\?"):
            homa.simulate(**wrong)
    with pytest.raises(homa.PlanError, match=r"write `load\.fraction = 0\.8`"):
        homa.simulate({"scenario": {"load": 80}})


def test_the_default_is_what_users_get():
    result = homa.simulate(messages=100)
    assert result.summary["scheme"] == "homa"


def test_paths_are_as_good_as_their_text():
    sizes = Path(homa.Sizes([1000]).path())
    given = {"messages": 100, "set": {"fabric.shape": {"kind": "single-switch", "hosts": 4}}}
    by_path = homa.simulate(workload=sizes, **given)
    assert by_path.trace_hash == homa.simulate(workload=str(sizes), **given).trace_hash


def test_a_mistake_in_a_mapping_names_its_key():
    with pytest.raises(homa.PlanError) as caught:
        homa.simulate({"scenario": {"load": {"basis": "bits"}}})
    assert caught.value.key == "scenario.load.basis"
    assert caught.value.allowed == ["paper", "wire", "everything", "payload"]
    assert caught.value.line is None
    with pytest.raises(homa.PlanError, match=r"2 simulations: homa\.sweep"):
        homa.simulate({"seeds": [1, 2]})
    for value, told in [(object(), "not object"), (float("inf"), "inf is no value")]:
        for wrong in [
            {"plan": {"scenario": {"load": {"fraction": value}}}},
            {"set": {"scenario.load.fraction": value}},
        ]:
            with pytest.raises(homa.PlanError, match=told) as caught:
                homa.simulate(**wrong)
            assert caught.value.key == "scenario.load.fraction"


def test_results_are_kept_as_the_program_keeps_them(tmp_path, small, program):
    result = homa.simulate(small, out=tmp_path / "kept")
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert {"plan.toml", "manifest.json", "summary.csv", "slowdown.parquet", "index.html"} <= names
    program("sim", tmp_path / "kept" / "plan.toml", "--out", tmp_path / "again")
    ours, theirs = (tmp_path / name / "slowdown.csv" for name in ("kept", "again"))
    assert ours.read_bytes() == theirs.read_bytes()
    assert result.plan == (tmp_path / "kept" / "plan.toml").read_text()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "plan.toml").write_text("somebody's")
    with pytest.raises(homa.HomaError, match="would be overwritten"):
        homa.simulate(small, out=tmp_path / "theirs")


ENDLESS = {"messages": 10**12, "topology": {"kind": "single-switch", "hosts": 4}}


def test_ctrl_c_ends_a_simulation_while_other_threads_go_on():
    ticks = []
    done = threading.Event()

    def tick():
        while not done.wait(0.01):
            ticks.append(1)
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=tick)
    thread.start()
    timer = threading.Timer(0.3, done.set)
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        homa.simulate(**ENDLESS)
    assert time.monotonic() - began < 60
    thread.join()
    assert len(ticks) > 5, "the interpreter was not released"


def test_a_callback_hears_of_progress_and_may_end_it():
    class Enough(Exception):
        pass

    heard = []

    def told(done, what):
        heard.append((done, what))
        raise Enough

    with pytest.raises(Enough):
        homa.simulate(**ENDLESS, progress=told)
    assert len(heard) == 1
    assert 0 <= heard[0][0] <= 1
    assert "messages" in heard[0][1]


def test_progress_without_a_bar_is_lines(capsys, monkeypatch, small):
    monkeypatch.setitem(__import__("sys").modules, "tqdm.auto", None)
    homa.simulate(small, progress=True)
    assert capsys.readouterr().err.startswith("100 % done: ")


def test_a_notebook_shows_drawings(small):
    result = homa.simulate(small)
    assert result._repr_html_().count("<img") == len(result.charts) == 2
    assert all(chart.startswith("<svg") for chart in result.charts)


def test_a_notebook_holds_every_drawing():
    shown = _show.images([f"<svg>{number}</svg>" for number in range(40)])
    before, after = shown.split("<details>")
    assert (before.count("<img"), after.count("<img")) == (6, 24)
    assert "24 more drawings" in after and "10 more drawings" in after


def test_drawings_in_a_notebook_are_dark_on_white_whatever_the_system_is(small):
    html = homa.simulate(small)._repr_html_()
    drawings = re.findall('background:#fff" src="data:image/svg.xml;base64,([^"]*)"', html)
    drawings = [base64.b64decode(drawing).decode() for drawing in drawings]
    assert len(drawings) == 2
    for drawing in drawings:
        assert drawing.endswith("</svg>\n") and "prefers-color-scheme" not in drawing


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"scheme": "dctpc"}, "`scheme`: unknown scheme `dctpc`; did you mean `dctcp`?"),
        ({"workload": "websearch"}, "unknown workload `websearch`; did you mean `web-search`?"),
        ({"set": {"load.fracton": 0.5}}, "unknown key `fracton`; did you mean `fraction`?"),
        ({"set": {"fabric.host_link": 25}}, "`25` has no unit: write 25Gbps or 25Mbps"),
    ],
)
def test_a_slip_is_told_what_was_meant(wrong, said):
    with pytest.raises(homa.PlanError) as caught:
        homa.simulate(**wrong)
    assert str(caught.value).endswith(said)


def test_numbers_of_a_plan_have_units():
    small = {"fabric.shape": {"kind": "single-switch", "hosts": 4}, "fabric.host_link": "10G"}
    plain = {**small, "traffic.max_bytes": 64 * 1024, "stop.messages": 100}
    units = {**small, "traffic.max_bytes": "64KiB", "stop.messages": "0.1k"}
    assert homa.simulate(set=units).trace_hash == homa.simulate(set=plain).trace_hash


def test_paths_may_be_of_any_bytes(tmp_path):
    text = (
        "[scenario]\nstop = { messages = 50 }\nfabric.shape = { kind = 'single-switch', hosts = 4 }"
    )
    plan = os.fsencode(tmp_path) + b"/plan\xe9.toml"
    out = os.fsencode(tmp_path) + b"/out\xe9"
    with open(plan, "w") as file:
        file.write(text)
    for path in (plan, os.fsdecode(plan), Path(os.fsdecode(plan))):
        assert homa.simulate(path).summary["messages"] == 50
    result = homa.simulate(plan, out=out)
    assert b"index.html" in os.listdir(out)
    assert homa.sweep(plan, out=out + b"2").summary["messages"] == [50]
    assert homa.report(out + b"2").paths[0].name == "index.html"
    table = tmp_path / "sizes.csv"
    table.write_text("size_bytes,cumulative_fraction\n100,1\n")
    assert homa.simulate(plan, workload=os.fsencode(table)).trace_hash != result.trace_hash
    # A plan is text, and names its tables.
    with pytest.raises(homa.PlanError, match="rename it") as caught:
        homa.simulate(plan, workload=os.fsencode(tmp_path) + b"/\xff.csv")
    assert caught.value.key == "workload"


def test_a_plan_of_a_spreadsheet_program_is_read(tmp_path):
    plan = tmp_path / "plan.toml"
    plan.write_bytes(b"\xef\xbb\xbf[scenario]\r\nstop = { messages = 50 }\r\n")
    assert homa.simulate(plan).summary["messages"] == 50
