"""`zonal doctor`: versions, devices and threads for bug reports."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from zonal.cli.output import format_table

__all__ = ["doctor"]

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
def doctor() -> None:
    """Show versions, devices and threads, for bug reports.

    \b
    Example:
      zonal doctor
    """
    import jax
    from threadpoolctl import threadpool_info

    import zonal.cli.data  # noqa: F401 (loads every BLAS library in use)
    from zonal.engine.passes import core_count

    table = [("Python", platform.python_version(), platform.platform())]
    for package in _PACKAGES:
        try:
            table.append((package, version(package), ""))
        except PackageNotFoundError:
            table.append((package, "–", "not installed"))
    devices = ", ".join(
        f"{device.platform} ({device.device_kind})" for device in jax.devices()
    )
    table += [
        ("devices", devices, ""),
        ("cores", str(core_count()), f"usable, of {os.cpu_count()}"),
    ]
    for pool in threadpool_info():
        library = f"{pool['internal_api']} {pool.get('version') or ''}".strip()
        meaning = f"{pool['num_threads']} threads, {Path(pool['filepath']).name}"
        table.append((pool["user_api"], library, meaning))
    click.echo(format_table(table))
