r"""A convolution of images as matrix products, whose gradient is one, too.

On a CPU the gradient of XLA's convolutions with respect to their weights costs several times what
the convolution does, where there are few channels: forwards and backwards the two convolutions of
`bnn-cifar10` take .78 ms of CPU per image on one core (.40 ms where XLA may use two), and .19 ms as
they are written here (`benchmarks/network_convolution.py`).
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key


class Convolution(eqx.Module):
    r"""A two-dimensional convolution with bias, without padding; channels are last.

    $$ y_{h, w, o} = b_o + \sum_{i, j, c} k_{o, c, i, j}\, x_{h + i, w + j, c} $$

    An output row is cut into blocks of `block` columns. Each is a linear function of `size` +
    `block` - 1 columns in each of `size` rows of the image, and the matrix of that function, in
    which the weights stand in bands, is the same for all blocks. It has about twice as many entries
    as are not 0; an ordinary product of large matrices is faster all the same.

    The weights have the shape and the initial distribution of those of `eqx.nn.Conv2d`.
    """

    weight: Float[Array, "outputs inputs size size"]
    bias: Float[Array, " outputs"]
    block: int = eqx.field(static=True)

    def __init__(
        self, inputs: int, outputs: int, size: int, *, block: int, key: Key[Array, ""]
    ) -> None:
        plain = eqx.nn.Conv2d(inputs, outputs, size, key=key)
        assert plain.bias is not None
        self.weight, self.bias, self.block = plain.weight, plain.bias.ravel(), block

    def __call__(self, image: Float[Array, "h w c"]) -> Float[Array, "height width outputs"]:
        outputs, channels, size, _ = self.weight.shape
        height, width = (length - size + 1 for length in image.shape[:2])
        if width % self.block:
            raise ValueError(
                f"block must divide the {width} columns of the output, got {self.block}."
            )
        seen = self.block + size - 1
        # Where column a of a block's input meets column b of its output: at offset j = a - b.
        meets = np.stack([np.eye(seen, self.block, -j) for j in range(size)])
        bands = jnp.einsum("jab,ocij->iacbo", meets.astype(self.weight.dtype), self.weight)
        columns = jnp.stack(
            [
                image[:, start : start + seen].reshape(len(image), seen * channels)
                for start in range(0, width, self.block)
            ],
            axis=1,
        )
        patches = jnp.concatenate([columns[i : i + height] for i in range(size)], axis=-1)
        product = patches @ bands.reshape(size * seen * channels, self.block * outputs)
        return product.reshape(height, width, outputs) + self.bias[None, None]


def pooled(image: Float[Array, "h w c"]) -> Float[Array, "h/2 w/2 c"]:
    """The maximum of each 2 × 2 pixels."""
    height, width, channels = image.shape
    pairs = image.reshape(height // 2, 2, width // 2, 2, channels)
    rows = jnp.maximum(pairs[:, 0], pairs[:, 1])
    return jnp.maximum(rows[:, :, 0], rows[:, :, 1])
