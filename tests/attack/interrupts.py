"""Ctrl-C at random moments of a run, and runs in many threads at once."""

import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import honest
import jax
import numpy as np

import pipla


def attack_by_interrupts(folder, count, seed=0, num_steps=400):
    """Send SIGINT `count` times while a run is at work. Returns counts and failures.

    A run that was interrupted must be saved, loaded and resumed to the same bits as one that was
    not. A signal before the first step may end the call as KeyboardInterrupt does everywhere.
    """
    chance = random.Random(seed)
    options = {"chunk_size": 8}
    whole = honest.run(num_steps, **options)
    began = time.perf_counter()
    honest.run(num_steps, **options)
    usual = time.perf_counter() - began
    counts, failures = Counter(), []
    received = []

    def on_signal(number, frame):
        received.append(number)
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, on_signal)
    try:
        for attempt in range(count):
            received.clear()
            result = None
            sender = _sender(chance.uniform(0, 1.1 * usual))
            try:
                sender.start()
                result = honest.run(num_steps, **options)
                before_the_end = bool(received)
                sender.join()
                time.sleep(0.01)  # the signal arrives here at the latest
            except KeyboardInterrupt:
                before_the_end = False
            except Exception as error:
                failures.append(f"{attempt}: {type(error).__name__}: {error}")
                continue
            if result is None:
                counts["before the first step"] += 1
            elif result.status is pipla.Status.INTERRUPTED:
                counts["interrupted"] += 1
                broken = _broken(result, whole, Path(folder) / "run")
                if broken:
                    failures.append(f"{attempt}: {broken}")
            else:
                counts["after the end"] += 1
                if before_the_end:
                    failures.append(f"{attempt}: a signal was swallowed")
    finally:
        signal.signal(signal.SIGINT, previous)
    return counts, failures


def _sender(delay):
    """Sends the signal after `delay` seconds, as precisely as the system can."""
    main = threading.main_thread().ident

    def send():
        time.sleep(delay)
        signal.pthread_kill(main, signal.SIGINT)

    return threading.Thread(target=send)


def _broken(result, whole, folder):
    """What is wrong with an interrupted run; `None` if it resumes to the same bits."""
    steps = len(result.theta_trace["a"])
    if steps != max(result.num_steps, 1):
        return f"{result.num_steps} steps, but {steps} rows"
    result.save(folder)
    rest = whole.num_steps - result.num_steps
    if rest == 0:
        return None
    resumed = pipla.resume(folder, honest.model(), num_steps=rest, progress=False)
    return None if same_numbers(resumed, whole) else "the resumed run differs"


def same_numbers(one, other):
    """Whether two runs made the same numbers."""
    pairs = (
        jax.tree.leaves((run.theta_trace, run.particles, run.x_mean, run.x_variance))
        for run in (one, other)
    )
    return all(np.array_equal(a, b) for a, b in zip(*pairs, strict=True))


def attack_by_threads(folder, num_threads, num_runs):
    """Runs in threads, all at once; each is saved, loaded and compared with a run alone."""
    keys = [jax.random.key(seed) for seed in range(num_runs)]
    alone = [honest.run(key=key) for key in keys]
    counts, failures = Counter(), []
    barrier = threading.Barrier(num_threads)

    def work(thread):
        barrier.wait()
        for number, key in enumerate(keys):
            try:
                path = Path(folder) / f"run-{number}"  # all threads save to the same folders
                honest.run(key=key).save(path)
                if not same_numbers(pipla.load(path), alone[number]):
                    failures.append(f"thread {thread}, run {number}: other numbers")
                counts["runs"] += 1
            except Exception as error:
                failures.append(f"thread {thread}, run {number}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    left = [path for path in Path(folder).rglob("*") if path.is_file() and path.name[0] == "."]
    return counts, failures + [f"left over: {path}" for path in left]
