"""Ten calls that users make, with XLA's own number of threads and several devices: each ends.

The other tests run with one thread per device, where nothing can wait for a thread that another
operation holds. Here every call is a process of its own, which is ended after `PATIENCE` seconds.

    python tests/attack/default_threads.py             # all calls on 1, 2 and 8 devices
    python tests/attack/default_threads.py 2 complete  # one call, on two devices
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import pipla

DEVICES = (1, 2, 8)
#: Seconds before a call counts as hanging. They need some ten.
PATIENCE = 400

rng = np.random.default_rng(0)


def table():
    """A regression on two of six features."""
    features = rng.normal(size=(80, 6))
    return features, features @ [2.0, -1, 0, 0, 0, 0] + rng.normal(size=80)


def low_rank(shape, count):
    """Some entries of a matrix of rank 2."""
    rows, columns = (rng.integers(0, size, count) for size in shape)
    left, right = (rng.normal(size=(size, 2)) for size in shape)
    values = np.sum(left[rows] * right[columns], axis=1) + rng.normal(size=count)
    return pipla.completion.Triplets(rows, columns, values, shape)


def image():
    """A square in noise."""
    truth = np.zeros((40, 40))
    truth[10:30, 10:30] = 100.0
    return truth + 5 * rng.normal(size=truth.shape)


def fit():
    features, target = table()
    likelihood = pipla.likelihoods.Logistic(features, target > 0)
    model = pipla.Model(likelihood, pipla.prox.LaplaceLocation(scale=1.0))
    return pipla.fit(model, theta=0.0, x=np.zeros(6)).theta


def nuclear(num_steps, **options):
    import jax

    likelihood = pipla.likelihoods.Gaussian(pipla.operators.Identity(), image(), 5.0)
    model = pipla.Model(likelihood, pipla.prox.NuclearStrength(normalised=True))
    start = np.broadcast_to(image(), (10, 40, 40))
    options |= {"theta": 0.0, "particles": start, "num_steps": num_steps, "key": jax.random.key(0)}
    return model, options


def run():
    model, options = nuclear(300)
    return pipla.run(model, pipla.RPL(0.5), **options).theta


def sweep():
    model, options = nuclear(50, num_replicates=8)
    return pipla.sweep(model, [pipla.RPL(0.5), pipla.RPL(0.3)], **options).theta


def restore():
    return pipla.imaging.restore(image(), pipla.operators.Identity(), noise=5.0, num_steps=100).mean


def deconvolve():
    return pipla.imaging.TVDeconvolution("box:5", noise=5.0).fit_transform(image())


def complete():
    # Large enough for a batch to be divided.
    return pipla.completion.complete(low_rank((900, 1600), 40_000), num_steps=20).noise


def complete_nuclear():
    seen = low_rank((60, 40), 900)
    return pipla.completion.complete(seen, prior="nuclear", num_steps=100).noise


def regress():
    return pipla.regression.SparseLinearRegression().fit(*table()).coef_


def classify():
    features, target = table()
    return pipla.regression.SparseLogisticRegression().fit(features, target > 0).coef_


def train():
    import equinox as eqx
    import jax

    features, target = table()
    key = jax.random.key(0)
    network = pipla.networks.model(eqx.nn.MLP(6, 2, 8, 1, key=key), features, target > 0)
    trained = pipla.networks.train(network, key=key, num_steps=100)
    return jax.tree.leaves(trained.theta)[0]


CALLS = {
    call.__name__: call
    for call in (
        *(fit, run, sweep, restore, deconvolve),
        *(complete, complete_nuclear, regress, classify, train),
    )
}


def ends(name, devices):
    """What is wrong with a call: nothing, that it does not end, or what it printed."""
    environment = {key: value for key, value in os.environ.items() if key != "PJRT_NPROC"}
    source = str(Path(pipla.__file__).parents[1])
    environment |= {"JAX_NUM_CPU_DEVICES": str(devices), "PYTHONPATH": source, "XLA_FLAGS": ""}
    program = f"import default_threads; default_threads.alone({name!r})"
    try:
        process = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program],
            cwd=Path(__file__).parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{name} on {devices} devices had not ended after {PATIENCE} s"
    return None if process.returncode == 0 else process.stderr


def alone(name):
    """Make one call; its answer must be finite."""
    found = np.asarray(CALLS[name](), float)
    if not np.isfinite(found).all():
        raise SystemExit(f"{name} returned {found}")


if __name__ == "__main__":
    devices, names = DEVICES, list(CALLS)
    if len(sys.argv) > 1:
        devices, names = (int(sys.argv[1]),), sys.argv[2:] or names
    failures = 0
    for count in devices:
        for call in names:
            wrong = ends(call, count)
            failures += wrong is not None
            print(f"{count} devices, {call}: {wrong or 'ends'}", flush=True)
    sys.exit(failures > 0)
