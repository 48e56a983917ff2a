import os
import signal

import pytest

from fedfeast.runs.interrupts import POLITE, ignore_interrupts, interruptible, uninterrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_kill_is_an_interrupt(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_one_does_not_cut_the_saving_short(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    done = False
    with interruptible(), uninterrupted():
        os.kill(os.getpid(), number)
        done = True
    assert done
    assert signal.getsignal(number) == before


def test_once_ignored_only_an_interruptible_block_listens() -> None:
    before = {number: signal.getsignal(number) for number in POLITE}
    try:
        ignore_interrupts()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt), interruptible():
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
