"""The demo: its output and its files."""

from zonal.cli.demo import run_demo


def test_it_prints_a_result_and_writes_a_report(tmp_path, capsys):
    run_demo(tmp_path / "made")
    printed = capsys.readouterr().out
    assert "test patients: R²" in printed
    assert str(tmp_path / "made" / "report.html") in printed
    report = (tmp_path / "made" / "report.html").read_text(encoding="utf-8")
    assert "Diabetes progression after one year" in report
    assert (tmp_path / "made" / "depth.png").read_bytes().startswith(b"\x89PNG")
