"""Imports go one way: each layer knows only those before it."""

import ast
from pathlib import Path

import pytest

import zonal

PACKAGE = Path(zonal.__file__).parent
# In the order in which a row of data meets them. A module may import from its own
# layer and from those before.
LAYERS = [
    "saving",
    "prior",
    "tables",
    "likelihoods",
    "engine",
    "inference",
    "learning",
    "prediction",
    "model",
    "conversion",
    "estimators",
    "scores",
    "plots",
    "report",
    "dask",
    "cli",
]


def imports(source: str) -> set[str]:
    """Modules of zonal that some code imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            # ``from zonal import name`` may name a module, too.
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("zonal.")}


def layer_of(module: str) -> str:
    return module.split(".")[1]


def backward_imports(module: str, source: str) -> list[str]:
    here = LAYERS.index(layer_of(module))
    ahead = {*LAYERS[here + 1 :]}
    return sorted(name for name in imports(source) if layer_of(name) in ahead)


def modules() -> list[tuple[str, Path]]:
    found = [
        (".".join(["zonal", *path.relative_to(PACKAGE).with_suffix("").parts]), path)
        for path in sorted(PACKAGE.rglob("*.py"))
    ]
    return [(name, path) for name, path in found if name != "zonal.__init__"]


@pytest.mark.parametrize(("name", "path"), modules())
def test_nothing_imports_backwards(name, path):
    assert backward_imports(name, path.read_text(encoding="utf-8")) == []


def test_every_module_has_its_layer():
    assert {layer_of(name) for name, _ in modules()} == set(LAYERS)


@pytest.mark.parametrize(
    "line",
    [
        "from zonal.model import Model",
        "import zonal.cli.app",
        "from zonal import estimators",
        "def later():\n    from zonal.learning.recipe import Recipe",
    ],
)
def test_a_backward_import_is_seen(line):
    assert backward_imports("zonal.engine.bound", line) != []
    assert backward_imports("zonal.cli.doctor", line) == []


def test_no_two_modules_import_each_other():
    known = {
        name: imports(path.read_text(encoding="utf-8")) for name, path in modules()
    }
    edges = {
        (name, other)
        for name, found in known.items()
        for other in known
        for one in found
        if other != name and (one == other or one.startswith(f"{other}."))
    }
    assert {(one, two) for one, two in edges if (two, one) in edges} == set()


def test_packages_have_empty_inits():
    # The door to the Dask extra is the exception: it says what to install.
    full = {
        path.parent.name
        for path in PACKAGE.glob("*/__init__.py")
        if path.read_text(encoding="utf-8").strip()
    }
    assert full == {"dask"}
