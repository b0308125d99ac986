"""A Ctrl-C is a Ctrl-C, wherever it comes."""

import pytest

from ilp_planner.base.errors import interruptible


def compiled(cause: BaseException | None) -> None:
    """Fail as compiled code does that comes back with an exception set."""
    raise SystemError("returned a result with an exception set") from cause


def test_an_interrupt_of_compiled_code_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        compiled(KeyboardInterrupt())


def test_an_interrupt_with_other_errors_in_between_is_an_interrupt() -> None:
    between = RuntimeError("cannot be loaded")
    between.__context__ = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt), interruptible():
        compiled(between)


@pytest.mark.parametrize("cause", [None, ValueError("x")])
def test_other_errors_stay_what_they_are(cause: BaseException | None) -> None:
    with pytest.raises(SystemError), interruptible():
        compiled(cause)


def test_an_interrupt_that_was_replaced_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError), interruptible():
        raise TypeError("Cannot compare structured arrays")
    monkeypatch.setattr("ilp_planner.base.interrupts._heard", [2])
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise TypeError("Cannot compare structured arrays")


def test_an_interrupt_while_rows_are_compared_is_an_interrupt() -> None:
    """NumPy makes a TypeError of whatever is raised there."""
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise TypeError("Cannot compare structured arrays") from KeyboardInterrupt()
