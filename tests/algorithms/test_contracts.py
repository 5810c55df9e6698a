"""What every algorithm promises, whatever it computes: each contract runs on each row of the table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from algorithms.table import ROWS, RUN_ROWS, TRACED, image, noncentred, parts, row, vector
from pipla.testing.algorithms import (
    RUN_CONTRACTS,
    SEED,
    STEP_CONTRACTS,
    keeps_the_structure_of_its_state,
    numbers_are_leaves,
)

#: Rows that take seconds to trace, even when their programs are cached.
SLOW = (
    "adaptive",
    "minibatch",
    "RPL",
    "IRPL",
    "Paired",
    "Kinetic scales",
    "SKROCK",
    "PIPGLA image",
    "MYIPLA image, hybrid",
)
#: The noise of theta is all that distinguishes them from PGD, MYIPLA and PIPULA: they are held to
#: the contracts that compile nothing here, and to their equations in `test_kernel.py`.
TWINS = ("IPLA", "MYPGD", "PPGD")
QUICK = (numbers_are_leaves, keeps_the_structure_of_its_state)
CONTRACTS = [
    (case, check)
    for case in ROWS
    for check in STEP_CONTRACTS
    if case.name not in TWINS or check in QUICK
]
CONTRACTS += [(case, check) for case in RUN_ROWS for check in RUN_CONTRACTS]
PAIRS = [
    pytest.param(
        case,
        check,
        id=f"{case}-{check.__name__}",
        marks=[pytest.mark.slow] if case.name in SLOW else [],
    )
    for case, check in CONTRACTS
]


@pytest.mark.parametrize(("row", "contract"), PAIRS)
def test_every_row_keeps_every_contract(row, contract):
    # optax itself mixes dtypes; pipla does not.
    with jax.numpy_dtype_promotion("standard" if row.holds_code else "strict"):
        contract(row)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.name in SLOW else [])
        for case in RUN_ROWS
    ],
)
def test_a_second_run_traces_no_program(case):
    with jax.numpy_dtype_promotion("standard" if case.holds_code else "strict"):
        case.run(20)
        TRACED.clear()
        case.run(23, case.make(0.8), chunk_size=9)
    assert len(TRACED) <= 2  # the shape check of the model, and whether it uses theta


def dtypes_of(tree):
    kinds = {leaf.dtype for leaf in jax.tree.leaves(tree)}
    return {kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)}


@pytest.mark.parametrize("case", [vector, parts], ids=["vector", "parts"])
def test_a_float32_run_stays_float32_under_x64(case):
    result = row("float32", pipla.PIPGLA, {"step_size": 0.05}, case=case).run(8, dtype=jnp.float32)
    kept = (result.theta_trace, result.particles, result.x_mean, result.x_variance)
    assert dtypes_of((kept, result.snapshot.leaves)) == {np.dtype(np.float32)}
    assert np.all(np.isfinite(jax.tree.leaves(result.theta)[0]))


# Random numbers: functions of (key, step, particle). #


def _flat(theta, x, data):
    return jnp.zeros((), x.dtype)


def noise_of(algorithm, num_particles, key, shape=(3,)):
    """Where one step takes particles that feel no force and start at 0: the noise itself."""
    model = pipla.Model(_flat)
    particles = jnp.zeros((num_particles, *shape))
    state = algorithm.init(model, jnp.zeros(()), particles)
    return algorithm.step(key, state, model)[0].particles


SAMPLERS = [
    pipla.PGD(0.5, theta_update="frozen"),
    pipla.MYULA(0.5, 1.0),
    pipla.PGLA(0.5),
    pipla.PIPULA(0.5, theta_update="frozen"),
]


@pytest.mark.parametrize("algorithm", SAMPLERS, ids=lambda a: a.name)
def test_noise_of_a_particle_does_not_depend_on_how_many_there_are(algorithm):
    key = jax.random.key(3)
    few, many = (noise_of(algorithm, count, key) for count in (4, 8))
    np.testing.assert_array_equal(few, many[:4])
    assert np.unique(np.asarray(many)).size == many.size


@pytest.mark.parametrize("algorithm", SAMPLERS, ids=lambda a: a.name)
def test_antithetic_pairs_have_opposite_noise(algorithm):
    paired = type(algorithm)(
        step_size=0.5,
        theta_update="frozen",
        antithetic=True,
        **({"smoothing": 1.0} if hasattr(algorithm, "smoothing") else {}),
    )
    for count in (4, 8):
        noise = np.asarray(noise_of(paired, count, jax.random.key(3)))
        np.testing.assert_array_equal(noise[0::2], -noise[1::2])
        assert np.unique(np.abs(noise)).size == noise.size // 2
    few, many = (noise_of(paired, count, jax.random.key(3)) for count in (4, 8))
    np.testing.assert_array_equal(few, many[:4])


def test_antithetic_noise_is_opposite_in_every_leaf():
    model = pipla.Model(lambda theta, x, data: jnp.zeros((), x["w"].dtype))
    _, theta, particles = parts(jnp.float64)
    still = jax.tree.map(jnp.zeros_like, particles)
    algorithm = pipla.PIPGLA(0.5, antithetic=True)
    after = algorithm.step(jax.random.key(0), algorithm.init(model, theta, still), model)[0]
    for leaf in map(np.asarray, jax.tree.leaves(after.particles)):
        np.testing.assert_array_equal(leaf[0::2], -leaf[1::2])
        assert np.all(leaf != 0)
    w, v = np.asarray(after.particles["w"]), np.asarray(after.particles["v"])
    assert np.intersect1d(np.abs(w), np.abs(v)).size == 0  # leaves do not share their noise


def test_leaves_of_one_shape_do_not_share_noise():
    model = pipla.Model(lambda theta, x, data: jnp.zeros((), x["a"].dtype))
    zeros = {"a": jnp.zeros((4, 3)), "b": jnp.zeros((4, 3))}
    algorithm = pipla.IPLA(0.5)
    theta = {"a": jnp.zeros(()), "b": jnp.zeros(())}
    after = algorithm.step(jax.random.key(0), algorithm.init(model, theta, zeros), model)[0]
    values = np.concatenate(
        [np.ravel(leaf) for leaf in jax.tree.leaves((after.theta, after.particles))]
    )
    assert np.unique(values).size == values.size


def test_steps_of_a_run_do_not_share_noise():
    model = pipla.Model(_flat)
    result = pipla.run(
        model,
        pipla.PGLA(0.5),
        theta=jnp.zeros(()),
        particles=jnp.zeros((2, 3)),
        num_steps=20,
        key=jax.random.key(0),
        save=pipla.Save(particles_every=1),
        check=False,
    )
    clouds = np.concatenate([np.zeros((1, 2, 3)), result.saved_particles])
    steps = np.diff(clouds, axis=0)
    assert np.unique(steps.round(12)).size == steps.size


def test_step_n_of_a_run_uses_the_key_folded_with_n():
    case = next(case for case in ROWS if case.name == "PIPGLA")
    start, algorithm = case.start(jnp.float64), case.make()
    state = algorithm.init(*start)
    for n in range(3):
        key = jax.random.fold_in(jax.random.key(SEED), n)
        state, _ = algorithm.step(key, state, start.model)
    np.testing.assert_allclose(state.theta, case.run(3, burn_in=0).theta_last, rtol=1e-12)


def test_an_iterative_prox_hands_its_warm_start_on_and_reports_its_gap():
    start = image(jnp.float64)
    algorithm = pipla.PIPGLA(0.05, theta_scale=0.01)
    state = algorithm.init(*start)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(state.warm))
    after, info = algorithm.step(jax.random.key(0), state, start.model)
    assert all(np.any(leaf) for leaf in jax.tree.leaves(after.warm))
    assert float(info.prox_gap) > 0


def test_closed_forms_have_no_gap_and_no_warm_start():
    start = vector(jnp.float64)
    algorithm = pipla.PIPGLA(0.05)
    state = algorithm.init(*start)
    assert jax.tree.leaves(state.warm) == []
    assert float(algorithm.step(jax.random.key(0), state, start.model)[1].prox_gap) == 0


# Wrappers nest. #


def _nested(*, step_size=0.05):
    scheme = pipla.PIPGLA(step_size, theta_noise=False)
    return {
        "annealed adaptive": pipla.Annealed(pipla.Adaptive(scheme), 3.0, 4.0),
        "adaptive annealed": pipla.Adaptive(pipla.Annealed(scheme, 3.0, 4.0)),
        "annealed twice": pipla.Annealed(pipla.Annealed(scheme, 3.0, 4.0), 2.0, 9.0),
        "annealed Metropolis": pipla.Annealed(pipla.MetropolisAdjusted(0.5, 0.4, theta_scale=0.3)),
    }


@pytest.mark.parametrize("name", _nested())
def test_wrappers_nest_and_resume(name, tmp_path):
    algorithm, start = _nested()[name], noncentred(jnp.float64)
    options = {"theta": start.theta, "particles": start.particles, "key": jax.random.key(3)}
    whole = pipla.run(start.model, algorithm, num_steps=30, burn_in=3, check=False, **options)
    part = pipla.run(start.model, algorithm, num_steps=12, burn_in=3, check=False, **options)
    part.save(tmp_path / "run")
    rest = pipla.resume(tmp_path / "run", start.model, num_steps=18)
    np.testing.assert_array_equal(rest.theta_trace, whole.theta_trace)
    np.testing.assert_array_equal(rest.x_variance, whole.x_variance)


def test_annealing_multiplies_the_steps_of_what_is_inside():
    annealed = pipla.Annealed(pipla.Adaptive(pipla.PIPGLA(theta_noise=False)), 4.0, 1e30)
    plain = pipla.Adaptive(pipla.PIPGLA(theta_noise=False), first=4.0, last=0.25)
    start = noncentred(jnp.float64)
    traces = [
        pipla.run(
            start.model,
            algorithm,
            theta=start.theta,
            particles=start.particles,
            num_steps=9,
            key=jax.random.key(3),
            check=False,
        ).theta_trace
        for algorithm in (annealed, plain)
    ]
    np.testing.assert_allclose(*traces, rtol=1e-12)


def test_rpl_has_the_step_size_of_its_scheme():
    assert float(pipla.RPL(0.02).step_size) == 0.02
    assert pipla.PIPGLA(0.1).numbers()["step_size"] == 0.1
