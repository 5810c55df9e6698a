"""Bring your own model: hospitals with a common centre, and a sparse regression.

    y_j = effect[hospital_j] + features_j . w + noise

The latent x is a dict of two parts. The effects of the hospitals vary around an unknown centre,
with a few outliers (Laplace around theta["centre"]). Few of the coefficients `w` are large (Laplace
around 0, of scale e^{2 theta["log_scale"]}). Theta, the two parameters of the priors, is estimated;
x is sampled. Run it with `python examples/own_model.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import pipla

HOSPITALS, PATIENTS, COEFFICIENTS = 12, 20, 10


def make_data(seed=0):
    """Three coefficients of ten are not zero; the centre is 5."""
    rng = np.random.default_rng(seed)
    hospital = np.repeat(np.arange(HOSPITALS), PATIENTS)
    effects = 5.0 + rng.laplace(size=HOSPITALS)
    features = rng.normal(size=(hospital.size, COEFFICIENTS))
    w = np.zeros(COEFFICIENTS)
    w[:3] = (1.5, -1.0, 0.5)
    y = effects[hospital] + features @ w + rng.normal(size=hospital.size)
    floats = jnp.result_type(float)  # float32, or float64 if x64 is on
    data = {
        "hospital": jnp.asarray(hospital),
        "features": jnp.asarray(features, floats),
        "y": jnp.asarray(y, floats),
    }
    return data, w


def smooth(theta, x, data):
    """The smooth part, for one particle: here, minus the log likelihood."""
    expected = x["effects"][data["hospital"]] + data["features"] @ x["w"]
    return jnp.sum((data["y"] - expected) ** 2) / 2


def main(num_steps=8000, num_particles=20):
    """Estimate theta; print it and the posterior means of w."""
    data, w = make_data()
    effects = pipla.prox.LaplaceLocation(scale=1.0).on(theta="centre", x="effects")
    sparse = pipla.prox.LaplaceScale().on(theta="log_scale", x="w")
    model = pipla.Model(smooth, effects + sparse, data=data)

    theta = {"centre": jnp.zeros(()), "log_scale": jnp.zeros(())}
    rng = np.random.default_rng(1)
    particles = {  # the leading axis of every leaf counts the particles
        "effects": rng.normal(size=(num_particles, HOSPITALS)),
        "w": rng.normal(size=(num_particles, COEFFICIENTS)),
    }
    result = pipla.run(
        model,
        # The step size is chosen by the library. Twenty patients determine each effect well, so
        # that theta can follow at once: a scale of 1.
        pipla.PIPGLA(theta_scale=1.0, theta_noise=False, antithetic=True),
        theta=theta,
        particles=particles,
        num_steps=num_steps,
        key=jax.random.key(0),
    )
    print(result.message)
    for name, value in result.theta.items():
        print(f"{name:>10}  {value:7.3f} ± {result.theta_mcse[name]:.3f}")
    print("\n  w: truth   mean     sd")
    for row in zip(w, result.x_mean["w"], np.sqrt(result.x_variance["w"]), strict=True):
        print("  " + "".join(f"{value:7.2f}" for value in row))
    return result


if __name__ == "__main__":
    main()
