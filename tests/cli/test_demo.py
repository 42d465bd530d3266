"""The demo that a newcomer runs first."""

from zonal.cli.demo import main


def test_it_prints_a_result_and_writes_a_report(tmp_path, capsys):
    main(tmp_path / "made")
    printed = capsys.readouterr().out
    assert "other people: R²" in printed
    assert str(tmp_path / "made" / "report.html") in printed
    assert "Diabetes, one year on" in (tmp_path / "made" / "report.html").read_text()
    assert (tmp_path / "made" / "depth.png").read_bytes().startswith(b"\x89PNG")
