"""Sample a posterior with theta held fixed: MYULA and PGLA against exact moments.

The toy model has independent coordinates, y_i = x_i + noise with a Laplace prior on x_i, so that
mean and standard deviation of each x_i given y are integrals over a line. Run it with
`python examples/sampler.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import pipla

ALGORITHMS = {
    # The smoothing of MYULA biases its samples; the step size biases those of both.
    "MYULA": pipla.MYULA(step_size=0.02, smoothing=0.05),
    "PGLA": pipla.PGLA(step_size=0.02),
}


def exact_moments(problem, theta):
    """Mean and standard deviation of each x_i given y, by the trapezoidal rule on a fine grid."""
    y = np.asarray(problem.model.data["y"])[:, None]
    x = y + np.linspace(-8.0, 8.0, 4001)  # the noise has standard deviation 1
    log_density = -((x - y) ** 2) / 2 - np.abs(x - theta)
    weights = np.exp(log_density - log_density.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    mean = np.sum(weights * x, axis=1)
    return mean, np.sqrt(np.sum(weights * (x - mean[:, None]) ** 2, axis=1))


def main(num_steps=5000, num_particles=40):
    """Run both samplers and print the errors of their moments."""
    problem = pipla.problems.toy()
    theta = problem.maximiser  # fixed: any value will do
    mean, sd = exact_moments(problem, theta)
    results = {}
    for name, algorithm in ALGORITHMS.items():
        result = pipla.run(
            problem.model,
            algorithm,
            theta=theta,
            particles=problem.particles(jax.random.key(1), num_particles, jnp.asarray(theta)),
            num_steps=num_steps,
            key=jax.random.key(0),
            save=pipla.Save(particles_every=100),  # for quantiles
        )
        kept = np.asarray(result.saved_particles)  # axes: time, particle, coordinate
        late = kept[len(kept) // 2 :].reshape(-1, problem.dimension)
        low, high = np.quantile(late[:, 0], [0.05, 0.95])
        off_mean = np.sqrt(np.mean((result.x_mean - mean) ** 2))
        off_sd = np.sqrt(np.mean((np.sqrt(result.x_variance) - sd) ** 2))
        print(f"{name}: rms error of the posterior means {off_mean:.3f}, of the sds {off_sd:.3f}")
        print(f"  x[0]: exact {mean[0]:.2f} ± {sd[0]:.2f}, sampled 90 % interval ", end="")
        print(f"[{low:.2f}, {high:.2f}]")
        results[name] = result
    return results


if __name__ == "__main__":
    main()
