"""Processes that save and read one result at once, and are killed meanwhile.

`attack_by_kills` has savers killed by SIGKILL at random moments, `attack_by_savers` has two savers
and two readers at work on one folder. Both look for results that are lost, mixed or left over.
"""

import contextlib
import json
import mmap
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import honest

import pipla
from pipla.engine.storage import DamagedResultError, save


def python(*arguments, **options):
    """This file as a program."""
    path = os.pathsep.join([str(Path(pipla.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, __file__, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": path},
        text=True,
        stdout=subprocess.PIPE,
        **options,
    )


def written(folder, result):
    """A result for other processes: its fields are NumPy arrays, and JAX is not started there."""
    path = Path(folder) / "result.pickle"
    path.write_bytes(pickle.dumps(honest.numbered(result, 0)))
    return path


def strangers(folder):
    """What is in or beside the folder and should not be."""
    inside = {path.name for path in folder.iterdir()} - {"result.pipla"}
    beside = {path.name for path in folder.parent.iterdir()} - {folder.name, "result.pickle"}
    return inside | beside


# Kills. #


def attack_by_kills(folder, count, seed=0):
    """Kill a saver `count` times. Returns counts and failures."""
    folder = Path(folder)
    result, target = honest.run(), folder / "run"
    counts, failures = Counter(), []
    arguments = ("killed", written(folder, result), target, count, seed)
    with python(*arguments, stdin=subprocess.PIPE) as process:
        for line in process.stdout:
            acknowledged, there = map(int, line.split())
            counts["kills"] += 1
            with contextlib.suppress(FileNotFoundError):
                if strangers(target):
                    counts["kills that left something"] += 1
            try:
                found = honest.number_of(pipla.load(target))
                if found is None or not acknowledged <= found <= acknowledged + 1:
                    failures.append(f"saved {acknowledged}, loaded {found}")
                counts["loaded"] += 1
            except FileNotFoundError as error:
                counts["killed before the first save"] += 1
                if there:
                    failures.append(f"lost: {error}")
            except DamagedResultError as error:
                failures.append(f"damaged: {error}")
            save(honest.numbered(result, acknowledged + 1), target)
            if strangers(target):
                failures.append(f"left after the next save: {strangers(target)}")
            if counts["kills"] % 10 == 0:  # the first save of a folder is killed, too
                (target / "result.pipla").unlink()
                target.rmdir()
            process.stdin.write("\n")
            process.stdin.flush()
    return counts, failures


def killed(source, target, count, seed):
    """The parent of savers: starts one, kills it, and waits for a line.

    It tells the last number that was saved, and whether there must be a result.
    """
    result = pickle.loads(Path(source).read_bytes())
    chance = random.Random(int(seed))
    shared = mmap.mmap(-1, 8)
    number = 0
    for _ in range(int(count)):
        shared[:8] = number.to_bytes(8, "little")
        began = Path(target).exists()
        child = os.fork()
        if child == 0:
            while True:
                number += 1
                save(honest.numbered(result, number), target)
                shared[:8] = number.to_bytes(8, "little")
        time.sleep(chance.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        saved = int.from_bytes(shared[:8], "little")
        print(saved, int(began or saved > number), flush=True)
        sys.stdin.readline()
        number = saved + 1


# Two savers and two readers. #


def attack_by_savers(folder, count):
    """Two savers save `count` times in all while two readers load. Returns counts and failures."""
    folder = Path(folder)
    result, target = honest.run(), folder / "run"
    source = written(folder, result)
    result = honest.numbered(result, 0)
    save(result, target)
    readers = [python("read", target, folder / "stop") for _ in range(2)]
    for reader in readers:
        reader.stdout.readline()  # it is ready
    savers = [python("save", source, target, count // 2, first) for first in (0, 10**6)]
    counts, failures = Counter(), []
    for saver in savers:
        told = json.loads(saver.communicate()[0])
        counts["saves"] += told["saves"]
        failures += told["failures"]
    (folder / "stop").touch()
    for reader in readers:
        told = json.loads(reader.communicate()[0])
        counts["loads"] += told["loads"]
        counts["different results seen"] += told["seen"]
        failures += told["failures"]
    (folder / "stop").unlink()
    if strangers(target):
        failures.append(f"left over: {strangers(target)}")
    if honest.number_of(pipla.load(target)) not in {count // 2, 10**6 + count // 2}:
        failures.append("the last save did not win")
    return counts, failures


def saver(source, target, count, first):
    result = pickle.loads(Path(source).read_bytes())
    failures = []
    for number in range(1, int(count) + 1):
        try:
            save(honest.numbered(result, int(first) + number), target)
        except Exception as error:
            failures.append(f"save: {type(error).__name__}: {error}")
    print(json.dumps({"saves": int(count), "failures": failures}))


def reader(target, stop):
    loads, seen, failures = 0, set(), []
    pipla.load(target)
    print("ready", flush=True)
    while not Path(stop).exists():
        loads += 1
        try:
            number = honest.number_of(pipla.load(target))
            seen.add(number)
            if number is None:
                failures.append("a mixture was loaded")
        except Exception as error:
            failures.append(f"load: {type(error).__name__}: {error}")
    print(json.dumps({"loads": loads, "seen": len(seen), "failures": failures[:20]}))


if __name__ == "__main__":
    {"killed": killed, "save": saver, "read": reader}[sys.argv[1]](*sys.argv[2:])
