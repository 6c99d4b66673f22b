"""Published figures, and pages of simulations."""

import pytest

import homa


def test_a_figure_is_compared_number_by_number(tmp_path, program):
    assert "homa-fig10" in homa.figures()
    (figure,) = homa.repro("detail-fig3", quick=True, out=tmp_path / "figure")
    assert figure.id == "detail-fig3"
    assert not figure.failed
    assert all(set(check) >= {"metric", "published", "measured"} for check in figure.checks)
    assert "numbers within" in repr(figure)
    with pytest.raises(homa.PlanError) as caught:
        homa.repro("homa-fig99", out=tmp_path / "none")
    assert "homa-fig10" in caught.value.allowed
    with pytest.raises(TypeError, match=r"homa\.figures"):
        homa.repro()


def test_a_page_is_drawn_as_asked(tmp_path, small):
    plan = {**small, "axes": {"load.fraction": [0.3, 0.6], "traffic.workload": ["w1", "w2"]}}
    sweep = homa.sweep(plan, out=tmp_path / "store")
    usual = homa.report(sweep).paths[0].read_text()
    chosen = homa.report(tmp_path / "store", metrics=["goodput"], only={"workload": "w1"})
    drawn = chosen.paths[0].read_text()
    assert drawn != usual
    alone = homa.report(sweep, metrics="goodput", only={"workload": "w1"})
    assert alone.paths[0].read_text() == drawn
    with pytest.raises(ValueError, match="nonsense"):
        homa.report(sweep, metrics=["nonsense"])
    with pytest.raises(FileNotFoundError):
        homa.report(tmp_path / "none")
