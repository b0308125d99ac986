"""How much of a script is followed at most: one budget for all of it."""

from dataclasses import dataclass

from ilp_planner.base.errors import SpecError

MOST = 4_000_000  # characters read or held, all in all
# What a command, a word and a piece of a word cost beside their characters.
COMMAND, WORD, PIECE = 40, 16, 4
DEEPEST = 40  # functions, groups and texts in one another


@dataclass(slots=True)
class Budget:
    """What is left to spend on a script, in characters.

    Every command that is followed, every word that is made and every text that is read takes from
    it, wherever in the script it stands: loops in loops and functions that call each other twice
    cannot get around it.
    """

    source: str
    left: int = MOST

    def spend(self, amount: int, line: int = 0) -> None:
        """Take from the budget.

        Raises
        ------
        SpecError: it is used up.
        """
        self.left -= amount
        if self.left < 0:
            where = f"line {line}: " if line else ""
            raise SpecError(
                f"{self.source}: {where}found more to follow than {MOST:,} characters of commands "
                "and words, expected a script that comes to its launch in fewer: give the launch "
                "line itself"
            )
