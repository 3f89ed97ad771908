"""`korvet topics`."""

import typer

app = typer.Typer(help="Topics: list, create, describe, delete.")
