"""A residual network with layer normalisation, its linear layers sparse and Bayesian.

Any equinox module will do: `pipla.networks.model` puts the weights of its linear layers under
Laplace priors with learned scales; biases and normalisations are deterministic and are trained by
Adam. The data are scikit-learn's 8 × 8 digits, which need no network. Run it with
`python examples/residual_network.py`; it takes about half a minute.
"""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import pipla
import pipla.networks

WIDTH, BLOCKS = 24, 2


class Block(eqx.Module):
    """x + W2 silu(W1 norm(x))."""

    norm: eqx.nn.LayerNorm
    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.norm = eqx.nn.LayerNorm(WIDTH)
        self.first = eqx.nn.Linear(WIDTH, WIDTH, key=first)
        self.second = eqx.nn.Linear(WIDTH, WIDTH, key=second)

    def __call__(self, x):
        return x + self.second(jax.nn.silu(self.first(self.norm(x))))


class Residual(eqx.Module):
    """An embedding, blocks, and one score per digit, for one image."""

    embed: eqx.nn.Linear
    blocks: list[Block]
    out: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, BLOCKS + 2)
        self.embed = eqx.nn.Linear(64, WIDTH, key=keys[0])
        self.blocks = [Block(one) for one in keys[2:]]
        self.out = eqx.nn.Linear(WIDTH, 10, key=keys[1])

    def __call__(self, image):
        x = self.embed(image)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def digits():
    """Training and test images with pixels from 0 to 1, and their labels."""
    images, labels = load_digits(return_X_y=True)
    images = images / 16
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:600], order[600:]
    return images[train], labels[train], images[test], labels[test]


def main(num_steps=400):
    """Train, show what was learned, prune."""
    # So few steps do for predictions; the scales are still on their way, and `train` says so.
    warnings.simplefilter("ignore", pipla.ConvergenceWarning)
    images, labels, new_images, new_labels = digits()
    network = pipla.networks.model(Residual(jax.random.key(0)), images, labels)
    trained = pipla.networks.train(network, num_steps=num_steps, key=jax.random.key(1))
    for name, alpha in trained.scales.items():
        print(f"{name:16} scale of its weights {np.exp(2 * alpha):.3f}")
    error = trained.error(new_images, new_labels)
    density = trained.log_predictive_density(new_images, new_labels)
    print(f"error on {len(new_labels)} new images: {error:.1%}, log density {density:.3f}")
    for fraction in (0.5, 0.8):
        error = trained.prune(fraction).error(new_images, new_labels)
        print(f"with {fraction:.0%} of the weights of every draw set to 0: {error:.1%}")
    module = trained.prune(0.5, average="particle").module()  # a plain equinox module again
    scores = jax.vmap(module)(jnp.asarray(new_images, jnp.float32))
    share = np.mean(np.argmax(scores, axis=1) != new_labels)
    print(f"one network, the mean of one particle, half of its weights 0: {share:.1%}")
    return trained


if __name__ == "__main__":
    main()
