"""`zonal figure`, `demo`, `doctor` and `completion`."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from zonal.cli.options import out_option
from zonal.cli.words import lines_of

__all__ = ["completion", "demo", "doctor", "figure"]

_PACKAGES = (
    "zonal",
    "jax",
    "jaxlib",
    "numpy",
    "scipy",
    "scikit-learn",
    "safetensors",
    "pyarrow",
    "dask",
    "matplotlib",
)


@click.command()
@click.argument("name", type=click.Choice(["depth"]))
@out_option(help="The file to write  [default: NAME.png]")
def figure(name: str, out: str | None) -> None:
    """Draw a figure that explains the model.

    depth: the spectra of deep networks beside that of one number, β, which is the
    depth that zonal learns; its numbers are printed.

    \b
    Example:
      zonal figure depth --out depth.png
    """
    from zonal.cli.data import checked_output
    from zonal.cli.depth_figure import depth_figure, depth_table

    path = checked_output(f"{name}.png" if out is None else out)
    depth_figure(path)
    click.echo(f"{depth_table()}\n")
    click.echo(f"figure: {path}")


@click.command()
@out_option(default="demo", show_default=True, help="The folder to write to.")
def demo(out: str) -> None:
    """Train on a small real table that is built in, predict, and write a report.

    \b
    Example:
      zonal demo --out demo
    """
    from zonal.cli.demo import main

    main(Path(out))


@click.command()
def doctor() -> None:
    """Show versions, devices and threads: what to tell when something is wrong.

    \b
    Example:
      zonal doctor
    """
    import jax
    from threadpoolctl import threadpool_info

    import zonal.cli.data  # noqa: F401 (so that every BLAS there is is loaded)
    from zonal.engine.passes import core_count

    found = [("Python", platform.python_version(), platform.platform())]
    for name in _PACKAGES:
        try:
            found.append((name, version(name), ""))
        except PackageNotFoundError:
            found.append((name, "–", "not installed"))
    devices = ", ".join(f"{one.platform} ({one.device_kind})" for one in jax.devices())
    found += [
        ("devices", devices, ""),
        ("cores", str(core_count()), f"of {os.cpu_count()} may be used"),
    ]
    for pool in threadpool_info():
        name = f"{pool['internal_api']} {pool.get('version') or ''}".strip()
        place = Path(pool["filepath"]).name
        found.append(
            (pool["user_api"], name, f"{pool['num_threads']} threads, {place}")
        )
    click.echo(lines_of(found))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands and options in SHELL.

    \b
    Examples:
      zonal completion bash >> ~/.bashrc
      zonal completion zsh >> ~/.zshrc
      zonal completion fish > ~/.config/fish/completions/zonal.fish
    """
    from zonal.cli.app import zonal

    kind = get_completion_class(shell)
    assert kind is not None, "the shells above are those that click knows"
    click.echo(kind(zonal, {}, "zonal", "_ZONAL_COMPLETE").source())
