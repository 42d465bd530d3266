"""Measure zonal and its peers, and write the tables of the documentation."""

import dataclasses
import tempfile
from pathlib import Path

import click

from zonal.cli.options import TIME
from zonal_bench.experiments import EXPERIMENTS
from zonal_bench.pages import write_pages
from zonal_bench.runs import perform
from zonal_bench.samples import quick_run

__all__ = ["bench"]


@click.command()
@click.argument("experiments", nargs=-1)
@click.option("--data", type=click.Path(), help="The folder with data [ZONAL_DATA].")
@click.option(
    "--results",
    type=click.Path(),
    default="benchmarks/results",
    show_default=True,
    help="The folder that results are kept in.",
)
@click.option(
    "--docs",
    type=click.Path(),
    default="docs",
    show_default=True,
    help="The folder of pages whose tables are filled from the results.",
)
@click.option("--table", "tables", multiple=True, help="Only this table; repeatable.")
@click.option(
    "--method", "methods", multiple=True, help="Only this method; repeatable."
)
@click.option("--splits", type=int, help="How many splits, or seeds.")
@click.option(
    "--limit",
    type=TIME,
    help="Stop any method that improves step by step after this long, instead of "
    "after what the protocol says or 10m.",
)
@click.option("--steps", type=int, help="Make zonal's learning shorter.")
@click.option("--again", is_flag=True, help="Run also what has been run before.")
@click.option(
    "--quick", is_flag=True, help="A small version of each, on tables made up."
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
    """Measure zonal beside its peers, and fill the documentation's tables.

    EXPERIMENTS are uci, susy, song, buzz, houseelectric, airline, covtype, speed,
    sizes, layouts and depth; "all" is all of them, and "tables" fills the tables from
    what has been measured before. Without any, what each of them does is printed. What
    is stored is not run again.

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
        for one in EXPERIMENTS.values():
            click.echo(f"{one.name}\n\n{_indented(one.protocol)}\n")
            click.echo(f"    tables:  {', '.join(one.tables)}")
            click.echo(f"    methods: {', '.join(one.methods)}\n")
        return
    asked = {"limit": limit, "steps": steps}
    asked = {name: value for name, value in asked.items() if value is not None}
    for name in chosen:
        if name == "tables":
            continue
        experiment = EXPERIMENTS[name]
        click.echo(f"{name}:")
        perform(
            experiment.cases(tables, methods, splits),
            experiment.measure,
            None if data is None else Path(data),
            Path(results),
            dataclasses.replace(experiment.settings, **asked),
            again,
            click.echo,
            limits=experiment.limits if limit is None else {},
        )
    if Path(docs).is_dir():
        pages = [*sorted(Path(docs).glob("*.md")), Path(docs).parent / "README.md"]
        here = [page for page in pages if page.is_file()]
        for path in write_pages(Path(results), here, Path(docs) / "figures"):
            click.echo(f"written: {path}")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


if __name__ == "__main__":
    bench()
