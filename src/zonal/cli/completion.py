"""`zonal completion`: shell completion of commands and options."""

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]


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

    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click supports each of the choices above"
    click.echo(completion_class(zonal, {}, "zonal", "_ZONAL_COMPLETE").source())
