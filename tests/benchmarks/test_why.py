"""What the table of `why` in docs/benchmarks/speed.md says of runs."""

from tests.benchmarks import why


def test_a_row_says_how_much_is_proved() -> None:
    def gain(least: float, most: float, stopped_by: str) -> dict[str, object]:
        return {
            "limit": "links", "change": "twice as fast", "least": least, "most": most,
            "stopped_by": stopped_by,
        }  # fmt: skip

    gains = [gain(0.01, 0.02, "proof"), gain(-0.3, 0.05, "time"), gain(0.0, 0.0, "gap")]
    row = {
        "case": "small", "gains": gains, "tried": 4, "wall_s": 12.34, "not": "tp=8",
        "not_wall_s": 2.0,
    }  # fmt: skip
    cells = [cell.strip() for cell in why.table([row]).splitlines()[-1].split("|")[1:-1]]
    assert cells == [
        "small", "4", "12.3", "2 of 4", "5.0 %", "links: twice as fast, 1.0 to 2.0 %", "`tp=8`",
        "2.0",
    ]  # fmt: skip
