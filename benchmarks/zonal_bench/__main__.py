"""Benchmark zonal and its peers, and write the tables of the documentation."""

import dataclasses
import tempfile
from pathlib import Path

import click

from zonal.cli.options import DURATION
from zonal_bench.experiments import EXPERIMENTS
from zonal_bench.pages import write_pages
from zonal_bench.runs import run_cases
from zonal_bench.samples import quick_run

__all__ = ["bench"]


@click.command()
@click.argument("experiments", nargs=-1)
@click.option("--data", type=click.Path(), help="Data folder [ZONAL_DATA].")
@click.option(
    "--results",
    type=click.Path(),
    default="benchmarks/results",
    show_default=True,
    help="Folder with results.",
)
@click.option(
    "--docs",
    type=click.Path(),
    default="docs",
    show_default=True,
    help="Folder of pages whose tables are filled from the results.",
)
@click.option("--table", "tables", multiple=True, help="Only this table; repeatable.")
@click.option(
    "--method", "methods", multiple=True, help="Only this method; repeatable."
)
@click.option("--splits", type=int, help="Number of splits, or seeds.")
@click.option(
    "--limit",
    type=DURATION,
    help="Time limit of iterative methods, instead of that of the protocol or 10m.",
)
@click.option("--steps", type=int, help="Maximum number of learning steps of zonal.")
@click.option("--again", is_flag=True, help="Repeat runs that are already stored.")
@click.option(
    "--quick",
    is_flag=True,
    help="A small version of each experiment, on synthetic tables.",
)
def bench(
    experiments: tuple[str, ...],
    data: str | None,
    results: str,
    docs: str,
    tables: tuple[str, ...],
    methods: tuple[str, ...],
    splits: int | None,
    limit: float | None,
    steps: int | None,
    again: bool,
    quick: bool,
) -> None:
    """Benchmark zonal and its peers, and fill the tables of the documentation.

    EXPERIMENTS are uci, susy, song, buzz, houseelectric, airline, covtype, speed,
    sizes, layouts and depth; "all" is all of them, and "tables" only fills the tables
    from stored results. Without arguments, the protocols are printed. Stored runs are
    not repeated.

    \b
    Examples:
      make bench-quick
      python -m zonal_bench uci --table kin40k --method zonal --splits 1
      ZONAL_DATA=data make bench
    """
    known = [*EXPERIMENTS, "all", "tables"]
    for name in experiments:
        if name not in known:
            raise click.UsageError(f"experiments are {', '.join(known)}, not {name!r}")
    chosen = list(EXPERIMENTS) if "all" in experiments else list(experiments)
    if quick:
        with tempfile.TemporaryDirectory() as folder:
            quick_run(Path(folder), [name for name in chosen if name != "tables"])
        return
    if not chosen:
        for experiment in EXPERIMENTS.values():
            click.echo(f"{experiment.name}\n\n{_indent(experiment.protocol)}\n")
            click.echo(f"    tables:  {', '.join(experiment.tables)}")
            click.echo(f"    methods: {', '.join(experiment.methods)}\n")
        return
    changes = {"limit": limit, "steps": steps}
    changes = {name: value for name, value in changes.items() if value is not None}
    for name in chosen:
        if name == "tables":
            continue
        experiment = EXPERIMENTS[name]
        click.echo(f"{name}:")
        run_cases(
            experiment.cases(tables, methods, splits),
            experiment.measure,
            None if data is None else Path(data),
            Path(results),
            dataclasses.replace(experiment.settings, **changes),
            again,
            click.echo,
            limits=experiment.limits if limit is None else {},
        )
    if Path(docs).is_dir():
        pages = [*sorted(Path(docs).glob("*.md")), Path(docs).parent / "README.md"]
        existing = [page for page in pages if page.is_file()]
        for path in write_pages(Path(results), existing, Path(docs) / "figures"):
            click.echo(f"written: {path}")


def _indent(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


if __name__ == "__main__":
    bench()
