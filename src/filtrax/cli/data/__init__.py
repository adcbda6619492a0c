"""`filtrax data`: look at data sets, and export them."""

import typer

from filtrax.cli.data.disc import disc
from filtrax.cli.data.kitti import kitti
from filtrax.cli.data.pushing import pushing
from filtrax.cli.data.streets import streets

__all__ = ["app"]

app = typer.Typer(help="Look at a data set, or write it into files for use elsewhere.")


@app.callback()
def data() -> None:
    """Look at a data set, or write it into files for use elsewhere."""


app.command()(disc)
app.command()(kitti)
app.command()(pushing)
app.command()(streets)
