"""What every algorithm promises, whatever it computes: each test runs on each row of the table."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting import compilations

import pipla
from algorithms.table import ROWS, TRACED, Row, image, parts, vector
from pipla.engine import chunk
from pipla.engine.run import as_dtype

SEED = 11


@pytest.fixture(params=ROWS, ids=repr)
def row(request):
    # optax itself mixes dtypes; pipla does not.
    with jax.numpy_dtype_promotion("strict" if request.param.optimizer is None else "standard"):
        yield request.param


def run(row, num_steps, *, dtype=jnp.float64, algorithm=None, seed=SEED, **options):
    model, theta, particles = row.case(dtype)
    return pipla.run(
        model,
        algorithm or row.make(),
        theta=theta,
        particles=particles,
        num_steps=num_steps,
        key=jax.random.key(seed),
        check=False,
        **{"burn_in": 5, "save": pipla.Save(moments_every=3)} | options,
    )


def same(one, other):
    """The same numbers, bit for bit, in the same structure."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def close(one, other, rtol=1e-12):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def differ(one, other):
    """No leaf is what it was."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert not np.array_equal(a, b)


def test_numbers_are_leaves_and_survive_flattening(row):
    algorithm = row.make()
    leaves, structure = jax.tree.flatten(algorithm)
    assert eqx.tree_equal(jax.tree.unflatten(structure, leaves), algorithm)
    numbers = [leaf for leaf in leaves if eqx.is_inexact_array(leaf)]
    given = {float(number) for number in jax.tree.leaves(row.numbers)}
    assert given <= {float(number) for number in numbers}
    code = [leaf for leaf in leaves if not eqx.is_inexact_array(leaf)]
    assert bool(code) == (row.optimizer is not None)


def dtypes_of(tree):
    kinds = {leaf.dtype for leaf in jax.tree.leaves(tree)}
    return {kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)}


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64], ids=["float32", "float64"])
def test_what_comes_out_has_the_dtype_of_what_went_in(row, dtype):
    # Shapes and dtypes only: the strict promotion of conftest.py raises wherever dtypes mix.
    start = row.case(dtype)
    algorithm = as_dtype(row.make(), start.particles)
    program = chunk.Program(start.model, algorithm, jax.random.key(0))
    carry = chunk.start(program, start.theta, start.particles, True)
    window = chunk.Window.of(0, 8, 5, 10)
    made = eqx.filter_eval_shape(chunk.advance, program, carry, window, 16)
    assert dtypes_of(made) == {np.dtype(dtype)}


@pytest.mark.parametrize("case", [vector, parts], ids=["vector", "parts"])
def test_a_float32_run_stays_float32_under_x64(case):
    row = Row("float32", pipla.PIPGLA, {"step_size": 0.05}, case=case)
    result = run(row, 8, dtype=jnp.float32)
    kept = (result.theta_trace, result.particles, result.x_mean, result.x_variance)
    assert dtypes_of((kept, result.snapshot.leaves)) == {np.dtype(np.float32)}
    assert np.all(np.isfinite(jax.tree.leaves(result.theta)[0]))


def test_state_keeps_structure_shapes_and_dtypes(row):
    algorithm = row.make()
    start = row.case(jnp.float64)
    model, state = start.model, algorithm.init(*start)
    after, info = jax.eval_shape(lambda s: algorithm.step(jax.random.key(0), s, model), state)
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (state, after))
    assert shapes[0] == shapes[1]
    assert isinstance(info, pipla.algorithms.Info)
    assert info.prox_gap.shape == ()
    slopes = (info.theta_gradient, info.particle_gradient)
    assert jax.tree.map(jnp.shape, slopes) == jax.tree.map(jnp.shape, tuple(state[:2]))


def test_changing_any_number_compiles_nothing(row):
    run(row, 20)
    model, theta, particles = row.case(jnp.float64)
    moved = jax.tree.map(lambda leaf: 0.9 * leaf, (theta, particles))
    other = row.make(0.8)
    key = jax.random.key(SEED + 1)
    TRACED.clear()
    with compilations() as compiled:
        pipla.run(
            model,
            other,
            theta=moved[0],
            particles=moved[1],
            num_steps=23,
            burn_in=7,
            chunk_size=9,
            key=key,
            save=pipla.Save(moments_every=2, particles_every=6),
            check=False,
        )
    assert compiled == []
    assert len(TRACED) <= 1  # the shape check of the model; no program is traced


def test_other_numbers_give_another_run(row):
    differ(run(row, 20).particles, run(row, 20, algorithm=row.make(0.8)).particles)


def test_a_step_by_hand_and_vmapped_over_keys_and_numbers_is_the_compiled_one(row):
    settings = [row.make(), row.make(0.7)]
    lanes = [(0, SEED), (0, SEED + 1), (1, SEED)]
    arrays = [eqx.partition(settings[s], eqx.is_inexact_array)[0] for s, _ in lanes]
    static = eqx.partition(settings[0], eqx.is_inexact_array)[1]
    start = row.case(jnp.float64)
    state = settings[0].init(*start)

    @jax.vmap
    def step(numbers, key):
        return eqx.combine(numbers, static).step(key, state, start.model)[0]

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays)
    keys = jnp.stack([jax.random.fold_in(jax.random.key(seed), 0) for _, seed in lanes])
    together = step(stacked, keys)
    for i, (s, seed) in enumerate(lanes):
        alone = run(row, 1, burn_in=0, algorithm=settings[s], seed=seed)
        lane = jax.tree.map(lambda leaf, i=i: leaf[i], together)
        close(lane.theta, alone.theta_last)
        close(lane.particles, alone.particles)


def test_a_run_depends_on_its_key_and_nothing_hidden(row):
    first = run(row, 6)
    same_run(first, run(row, 6))
    differ(first.particles, run(row, 6, seed=SEED + 1).particles)


def same_run(one, other):
    same(one.theta_trace, other.theta_trace)
    same(one.snapshot.leaves, other.snapshot.leaves)
    same(jax.tree.map(np.asarray, one.particles), jax.tree.map(np.asarray, other.particles))
    same(
        jax.tree.map(np.asarray, (one.x_mean, one.x_variance)),
        jax.tree.map(np.asarray, (other.x_mean, other.x_variance)),
    )
    assert (one.num_steps, one.burn_in, one.prox_gap) == (
        other.num_steps,
        other.burn_in,
        other.prox_gap,
    )


def test_a_resumed_run_is_the_run_that_never_stopped(row):
    model = row.case(jnp.float64).model
    whole = run(row, 60)
    same_run(whole, pipla.resume(run(row, 25), model, num_steps=35))


def test_a_saved_and_resumed_run_is_the_run_that_never_stopped(row, tmp_path):
    model = row.case(jnp.float64).model
    run(row, 25).save(tmp_path / "run")
    given = {} if row.optimizer is None else {"algorithm": row.make()}
    same_run(run(row, 60), pipla.resume(tmp_path / "run", model, num_steps=35, **given))


def test_chunks_of_any_size_give_the_same_numbers(row):
    whole = run(row, 40)
    for chunk_size in (1, 7, 64):
        same_run(whole, run(row, 40, chunk_size=chunk_size))


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
    row = Row("antithetic parts", pipla.PIPGLA, {"step_size": 0.5}, {"antithetic": True}, parts)
    model = pipla.Model(lambda theta, x, data: jnp.zeros((), x["w"].dtype))
    _, theta, particles = parts(jnp.float64)
    still = jax.tree.map(jnp.zeros_like, particles)
    algorithm = row.make()
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
    row = next(row for row in ROWS if row.name == "PIPGLA")
    start, algorithm = row.case(jnp.float64), row.make()
    state = algorithm.init(*start)
    for n in range(3):
        key = jax.random.fold_in(jax.random.key(SEED), n)
        state, _ = algorithm.step(key, state, start.model)
    close(state.theta, run(row, 3, burn_in=0).theta_last)


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
    from algorithms.table import noncentred

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
    from algorithms.table import noncentred

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
