"""Turns at a network: one thread at a time, fair, taken again by who has it, and none left over in a forked child."""

from __future__ import annotations

import os
from copy import deepcopy
from threading import Barrier, Event, Thread
from time import sleep

import pytest

from forked import in_a_child
from hatrack.nets.turn import Turn


def test_one_thread_at_a_time_and_again() -> None:
    turn, inside, most = Turn(), 0, 0
    barrier = Barrier(4)

    def work() -> None:
        nonlocal inside, most
        barrier.wait()
        for _ in range(200):
            with turn, turn:
                inside += 1
                most = max(most, inside)
                sleep(0)
                inside -= 1

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_who_waits_comes_before_the_owner_comes_again() -> None:
    turn, waiting, came = Turn(), Event(), Event()

    def wait() -> None:
        waiting.set()
        with turn:
            came.set()

    with turn:
        thread = Thread(target=wait)
        thread.start()
        waiting.wait()
        sleep(0.05)  # by now it stands in the door
    for _ in range(3):
        with turn:  # taken at once, as a training loop does
            pass
    assert came.is_set()
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_has_its_turn_or_is_told_why_not() -> None:
    turn, held, done = Turn(), Event(), Event()

    def take() -> bool:
        with turn:
            return True

    assert in_a_child(take) is True
    with turn:
        assert in_a_child(take) is True  # the thread that has it goes on having it there

    def hold() -> None:
        with turn:
            held.set()
            done.wait()

    thread = Thread(target=hold)
    thread.start()
    held.wait()
    assert in_a_child(take) is None
    done.set()
    thread.join()
    assert in_a_child(take) is True


def test_a_copy_is_free() -> None:
    turn = Turn()
    with turn:
        copy, taken = deepcopy(turn), Event()

        def take() -> None:
            with copy:
                taken.set()

        thread = Thread(target=take)
        thread.start()
        thread.join(5)
    assert taken.is_set()
