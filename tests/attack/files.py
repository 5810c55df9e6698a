"""`make attack`: files, kills, interrupts, savers and threads at full length, as a table.

    python tests/attack/files.py [--share 1.0] [--seed 0]

The exit code is 1 if anything was lost, mixed, left over, executed or raised a raw error.
"""

import argparse
import sys
import tempfile
import time

import hostile_files
import jax
from interrupts import attack_by_interrupts, attack_by_threads
from savers import attack_by_kills, attack_by_savers


def hostile(folder, count, seed):
    """Hostile files, with the peak memory and the slowest load among the counts."""
    verdict = hostile_files.attack_files(folder, count, seed)
    measured = {
        "peak memory / honest file": f"{verdict.peak:.2f}",
        "slowest load": f"{verdict.slowest:.2f} s",
    }
    return dict(sorted(verdict.counts.items())) | measured, verdict.failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="the share of the full length")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    share, seed = options.share, options.seed

    def times(count):
        return max(2, round(share * count))

    attacks = {
        f"{times(2000)} hostile files": lambda f: hostile(f, times(2000), seed),
        f"{times(100)} SIGKILLs while saving": lambda f: attack_by_kills(f, times(100), seed),
        f"{times(100)} SIGINTs during a run": lambda f: attack_by_interrupts(f, times(100), seed),
        f"2 savers, 2 readers, {times(5000)} saves": lambda f: attack_by_savers(f, times(5000)),
        f"8 threads × {times(50)} runs": lambda f: attack_by_threads(f, 8, times(50)),
    }
    failed = 0
    for name, attack in attacks.items():
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            counts, failures = attack(folder)
        failed += len(failures)
        seconds = time.perf_counter() - began
        print(f"{name:<36} failures {len(failures):<5} {seconds:7.1f} s", flush=True)
        for what, count in counts.items():
            print(f"    {what:<32} {count}", flush=True)
        for failure in failures[:20]:
            print(f"    FAILED {failure}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
