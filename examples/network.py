"""A network whose last layers are Bayesian: convolutions in theta, two sparse layers as x.

The convolutions are an ordinary equinox module and are trained by Adam. The weights of the two
dense layers after them are sampled; each layer has a Laplace prior whose scale e^{2 theta} is
learned by gradient descent. Steps see 64 of 600 images. After 120 of 200 steps the run is saved,
loaded and resumed, and ends at the same numbers, bit for bit, as a run without a break. Run it with
`python examples/network.py`.
"""

import pathlib
import tempfile
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import pipla

SIZE, CLASSES, FEATURES, HIDDEN, PARTICLES = 8, 3, 16, 12, 10


class Network(eqx.Module):
    """Theta: two convolutions, and the logarithms of the scales of the layers that follow."""

    convolutions: list[eqx.nn.Conv2d]
    log_scales: dict[str, jax.Array]

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.convolutions = [
            eqx.nn.Conv2d(1, 8, 3, key=first),
            eqx.nn.Conv2d(8, FEATURES, 3, key=second),
        ]
        self.log_scales = {"hidden": jnp.asarray(-0.5), "out": jnp.asarray(0.0)}

    def __call__(self, image):
        for convolution in self.convolutions:
            image = jax.nn.relu(convolution(image))
        return jnp.mean(image, axis=(1, 2))


def scores(theta, x, images):
    """One score per class for each image; `x` is one particle."""
    hidden = jnp.tanh(jax.vmap(theta)(images) @ x["hidden"])
    return hidden @ x["out"]


def smooth(theta, x, data):
    """Minus the log likelihood: a sum over the images, which `Minibatch` may take apart."""
    return jnp.sum(
        optax.softmax_cross_entropy_with_integer_labels(
            scores(theta, x, data["images"]), data["labels"]
        )
    )


def make_data(count, seed):
    """Noisy stripes: horizontal, vertical or diagonal."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=count)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    direction = np.stack([rows, columns, rows + columns])[labels]
    phase = rng.uniform(0, 2 * np.pi, size=(count, 1, 1))
    images = np.sin(direction + phase) + rng.normal(size=direction.shape)
    floats = jnp.result_type(float)  # float32, or float64 if x64 is on
    return {"images": jnp.asarray(images[:, None], floats), "labels": jnp.asarray(labels)}


def which_optimizer(theta):
    """A tree like theta with the name of the optimiser of each leaf."""
    names = jax.tree.map(lambda _: "network", theta)
    return eqx.tree_at(lambda t: t.log_scales, names, {"hidden": "scales", "out": "scales"})


def main(num_steps=200, first_part=120):
    """Train, save, load, resume; print what was learned."""
    # Weights of a network need not settle to be useful; a run says that they have not.
    warnings.simplefilter("ignore", pipla.ConvergenceWarning)
    data, held_out = make_data(600, seed=0), make_data(600, seed=1)
    layers = (
        pipla.prox.LaplaceScale().on(theta=("log_scales", "hidden"), x="hidden"),
        pipla.prox.LaplaceScale().on(theta=("log_scales", "out"), x="out"),
    )
    model = pipla.Model(smooth, layers[0] + layers[1], data=data)
    # The optimiser gets the gradient of the potential, a sum over all images and weights.
    optimizers = {"network": optax.adam(1e-2), "scales": optax.sgd(1e-3)}
    scheme = pipla.PIPGLA(
        1e-3,
        theta_update="gradient",
        theta_noise=False,
        theta_optimizer=optax.multi_transform(optimizers, which_optimizer),
    )
    algorithm = pipla.Minibatch(scheme, size=64, data_rows=True)
    keys = jax.random.split(jax.random.key(0), 4)
    shapes = {"hidden": (PARTICLES, FEATURES, HIDDEN), "out": (PARTICLES, HIDDEN, CLASSES)}
    start = {
        "theta": Network(keys[0]),
        "particles": {
            "hidden": jax.random.laplace(keys[1], shapes["hidden"]) * jnp.exp(-1.0),
            "out": jax.random.laplace(keys[2], shapes["out"]),
        },
        # `check` would measure the curvature on all images, once, and warn of long steps.
        "check": False,
        "burn_in": num_steps // 2,
        "key": keys[3],
    }
    whole = pipla.run(model, algorithm, num_steps=num_steps, **start)

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "run"
        pipla.run(model, algorithm, num_steps=first_part, **start).save(path)
        # Files hold numbers, never code: what is code is given again.
        resumed = pipla.resume(
            path,
            model,
            num_steps=num_steps - first_part,
            algorithm=algorithm,
            theta=Network(keys[0]),
        )
    same = eqx.tree_equal(
        (resumed.theta_last, resumed.particles), (whole.theta_last, whole.particles)
    )
    print(f"resumed after {first_part} of {num_steps} steps, equal bit for bit: {bool(same)}")

    @jax.jit
    def right(particles, images, labels):
        each = jax.vmap(lambda x: jax.nn.softmax(scores(whole.theta_last, x, images)))(particles)
        return jnp.mean(jnp.argmax(jnp.mean(each, axis=0), axis=-1) == labels)

    print(f"held-out images classified correctly: {right(whole.particles, **held_out):.1%}")
    for name, value in whole.theta_last.log_scales.items():
        print(f"scale of the weights of layer {name!r}: {np.exp(2 * value):.2f}")
    return whole


if __name__ == "__main__":
    main()
