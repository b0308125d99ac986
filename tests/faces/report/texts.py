"""What tables and lines say, as tests read them."""

from rich.console import Console

from ilp_planner.faces.report.console import fitted
from ilp_planner.faces.report.tables import Table

A100_ONLY = [(0, 6, 1, (2, 3, 4, 5))]  # one stage of the small mixed cluster: its T4 stay idle


def text_of(table: Table, width: int = 200) -> str:
    """Return a table as a terminal of that width shows it."""
    console = Console(width=width)
    with console.capture() as capture:
        console.print(fitted(table, width))
    return capture.get()
