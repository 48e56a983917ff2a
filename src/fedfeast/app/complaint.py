"""How the command line says what went wrong."""

from rich.console import Console
from rich.markup import escape


def print_error(error: Exception) -> None:
    """Print an error as one sentence on standard error."""
    Console(stderr=True).print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
