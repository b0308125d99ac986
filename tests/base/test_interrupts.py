"""Signals wait until the work in hand is done, and are not forgotten."""

import signal
import threading
from collections.abc import Iterator

import pytest

from ilp_planner.base.interrupts import SIGNALS, postponed


class CaughtError(Exception):
    """What the handler of these tests raises."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    def catch(number: int, frame: object) -> None:
        raise CaughtError(number)

    before = {number: signal.signal(number, catch) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_handler_is_called_at_the_end(number: signal.Signals) -> None:
    done = []

    def work() -> None:
        with postponed():
            signal.raise_signal(number)
            done.append(1)

    with pytest.raises(CaughtError, match=str(int(number))):
        work()
    assert done
    with pytest.raises(CaughtError):
        signal.raise_signal(number)


def test_the_end_is_that_of_the_outermost() -> None:
    done = []

    def work() -> None:
        with postponed():
            with postponed():
                signal.raise_signal(signal.SIGTERM)
            done.append(1)

    with pytest.raises(CaughtError):
        work()
    assert done


def test_nothing_is_called_without_a_signal() -> None:
    with postponed():
        pass


def test_errors_pass() -> None:
    with pytest.raises(ZeroDivisionError), postponed():
        raise ZeroDivisionError
    with pytest.raises(CaughtError):
        signal.raise_signal(signal.SIGINT)


def test_ignored_signals_stay_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with postponed():
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_another_thread_is_left_alone() -> None:
    """Only the main thread may set handlers, and only it is interrupted."""
    done = []

    def work() -> None:
        with postponed():
            done.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
