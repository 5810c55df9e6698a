"""The model: gradients over the cloud in one pass, and bad input refused before anything compiles."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import pipla
from pipla import _checks
from pipla.testing import compilations

D, N = 3, 4
Y = jnp.asarray([0.5, -1.0, 2.0])
PARTICLES = jnp.asarray(np.random.default_rng(0).normal(size=(N, D)))
KEY = jax.random.key(0)


def smooth(theta, x, y):
    return jnp.sum((x - y) ** 2) / 2 + jnp.cos(theta) * jnp.sum(x**3) / 10


def dict_smooth(theta, x, y):
    return jnp.sum((x["w"] - y) ** 2) + theta["a"] * jnp.sum(x["v"]) + jnp.sum(theta["b"] ** 2)


MODEL = pipla.Model(smooth, pipla.prox.LaplaceLocation(2.0), data=Y)


# Gradients. #


@pytest.mark.parametrize("nonsmooth_theta", [False, True])
@pytest.mark.parametrize("nonsmooth_x", [False, True])
def test_batched_gradients_are_those_of_each_particle(nonsmooth_theta, nonsmooth_x):
    theta = jnp.asarray(0.3)
    batched = MODEL.gradients(
        theta, PARTICLES, nonsmooth_theta=nonsmooth_theta, nonsmooth_x=nonsmooth_x
    )
    g1, g2 = (jax.grad(f, argnums=(0, 1)) for f in (MODEL.smooth_value, MODEL.nonsmooth.value))
    slopes = []
    for i, x in enumerate(PARTICLES):
        (t1, x1), (t2, x2) = g1(theta, x), g2(theta, x)
        slopes.append(t1 + t2 if nonsmooth_theta else t1)
        np.testing.assert_allclose(
            batched.particles[i], x1 + x2 if nonsmooth_x else x1, rtol=1e-13, atol=1e-14
        )
    np.testing.assert_allclose(batched.theta, np.mean(slopes), rtol=1e-13)


def test_gradients_of_pytrees_keep_their_structure():
    model = pipla.Model(dict_smooth, data=Y)
    theta = {"a": jnp.asarray(2.0), "b": jnp.ones(2)}
    particles = {"w": PARTICLES, "v": jnp.ones((N, 2, 2))}
    slope = model.gradients(theta, particles)
    np.testing.assert_allclose(slope.theta["a"], 4.0)
    np.testing.assert_allclose(slope.theta["b"], [2.0, 2.0])
    np.testing.assert_allclose(slope.particles["w"], 2 * (PARTICLES - Y[None]))
    np.testing.assert_allclose(slope.particles["v"], np.full((N, 2, 2), 2.0))


def test_gradients_cost_one_trace_and_one_reverse_pass_for_the_whole_cloud():
    passes = {"forward": 0, "reverse": 0}

    @jax.custom_vjp
    def watched(theta, x):
        return smooth(theta, x, Y)

    def forward(theta, x):
        passes["forward"] += 1
        return jax.vjp(lambda t, v: smooth(t, v, Y), theta, x)

    def reverse(pull, cotangent):
        passes["reverse"] += 1
        return pull(cotangent)

    watched.defvjp(forward, reverse)
    model = pipla.Model(lambda theta, x, data: watched(theta, x))
    slope = model.gradients(jnp.asarray(0.3), PARTICLES)
    assert passes == {"forward": 1, "reverse": 1}
    expected = pipla.Model(smooth, data=Y).gradients(jnp.asarray(0.3), PARTICLES)
    np.testing.assert_allclose(slope.particles, expected.particles, rtol=1e-13)
    np.testing.assert_allclose(slope.theta, expected.theta, rtol=1e-13)


def test_potential_is_smooth_plus_nonsmooth():
    theta, x = jnp.asarray(0.3), PARTICLES[0]
    expected = smooth(theta, x, Y) + np.abs(np.asarray(x) - 0.3).sum() / 2
    np.testing.assert_allclose(MODEL.potential(theta, x), expected, rtol=1e-13)


def test_a_model_may_be_smooth_only_or_a_term_only():
    x, theta = PARTICLES[0], jnp.asarray(0.3)
    assert pipla.Model(smooth, data=Y).potential(theta, x) == smooth(theta, x, Y)
    term = pipla.prox.L1()
    assert pipla.Model(None, term).potential(theta, x) == term.value(theta, x)
    slope = pipla.Model(None, term).gradients(theta, PARTICLES)
    assert not np.any(slope.particles)


def test_data_become_arrays_once():
    model = pipla.Model(smooth, data={"y": np.ones(3), "number": 2.0, "name": "text", "none": None})
    assert isinstance(model.data["y"], jax.Array)
    assert isinstance(model.data["number"], jax.Array)
    assert model.data["name"] == "text"


# Bad input: a line of issue 2 ("Must show" 9), and more. #


def run(model=MODEL, algorithm=None, *, theta=0.0, particles=PARTICLES, **options):
    options = {"num_steps": 5, "key": KEY} | options
    algorithm = pipla.PIPGLA(0.1) if algorithm is None else algorithm
    return pipla.run(model, algorithm, theta=theta, particles=particles, **options)


def sweep(algorithms=None, *, theta=0.0, particles=PARTICLES, model=MODEL, **options):
    options = {"num_steps": 5, "key": KEY} | options
    algorithms = [pipla.PIPGLA(0.1)] if algorithms is None else algorithms
    return pipla.sweep(model, algorithms, theta=theta, particles=particles, **options)


NAN = jnp.asarray([0.5, jnp.nan, 2.0])
PARTS = {"theta": {"a": 0.1, "b": jnp.ones(2)}, "particles": {"w": PARTICLES, "v": PARTICLES}}


def on(**address):
    return pipla.Model(dict_smooth, pipla.prox.LaplaceLocation().on(**address), data=Y)


def returning(value):
    return pipla.Model(lambda theta, x, y: value(theta, x), data=Y)


BAD = {
    # particles
    "particles without leading axis": (lambda: run(particles=1.0), ValueError, "particles"),
    "one particle without leading axis, by broadcasting also many": (
        lambda: run(particles=PARTICLES[0]),
        ValueError,
        r"particles must have a leading axis, got shape \(3,\).*\(3, 1\) or \(num_particles, 3\)",
    ),
    "a leaf of particles without leading axis": (
        lambda: run(particles={"w": PARTICLES, "v": 0.5}),
        ValueError,
        r"particles\['v'\]",
    ),
    "different numbers of particles": (
        lambda: run(particles={"w": PARTICLES, "v": PARTICLES[:2]}),
        ValueError,
        "particles",
    ),
    "no particle": (lambda: run(particles=PARTICLES[:0]), ValueError, "particles"),
    "empty particles": (lambda: run(particles={}), ValueError, "particles"),
    "particles None": (lambda: run(particles=None), ValueError, "particles"),
    "integer particles": (lambda: run(particles=[[1, 2, 3]]), TypeError, "particles"),
    "NaN in particles": (lambda: run(particles=PARTICLES.at[1, 2].set(jnp.nan)), ValueError, "par"),
    "text as particles": (lambda: run(particles="start"), TypeError, "particles"),
    # theta
    "integer theta": (lambda: run(theta=0), TypeError, "theta"),
    "boolean theta": (lambda: run(theta=True), TypeError, "theta"),
    "complex theta": (lambda: run(theta=1j), TypeError, "theta"),
    "integer leaf of theta": (lambda: run(theta={"a": 0.1, "b": 1}), TypeError, r"theta\['b'\]"),
    "empty theta": (lambda: run(theta={}), ValueError, "theta"),
    "theta None": (lambda: run(theta=None), ValueError, "theta"),
    "NaN in theta": (lambda: run(theta=jnp.nan), ValueError, "theta"),
    "infinite theta": (lambda: run(theta=jnp.inf), ValueError, "theta"),
    "text as theta": (lambda: run(theta="zero"), TypeError, "theta"),
    # data
    "NaN in data": (lambda: pipla.Model(smooth, data=NAN), ValueError, "data"),
    "NaN in NumPy data": (lambda: pipla.Model(smooth, data=np.asarray(NAN)), ValueError, "data"),
    "NaN in nested data": (
        lambda: pipla.Model(smooth, data={"a": [np.ones(2), {"b": NAN}]}),
        ValueError,
        r"data\['a'\]\[1\]\['b'\] has 1",
    ),
    "text array as data": (
        lambda: pipla.Model(smooth, data={"names": np.array(["a", "b"])}),
        TypeError,
        r"data\['names'\]",
    ),
    "object array as data": (
        lambda: pipla.Model(smooth, data=np.array([None, 1.0], dtype=object)),
        TypeError,
        "data",
    ),
    # numbers of algorithms
    **{
        f"{name} {value}": (lambda n=name, v=value: pipla.MYIPLA(**{n: v}), ValueError, name)
        for name in ("step_size", "smoothing", "theta_scale")
        for value in (0.0, -0.1, float("nan"), float("inf"))
    },
    "text as step_size": (lambda: pipla.PIPGLA("fast"), TypeError, "step_size"),
    "text as smoothing": (lambda: pipla.MYPGD(0.1, "a lot"), TypeError, "smoothing"),
    "complex step_size": (lambda: pipla.PIPGLA(1j), TypeError, "step_size"),
    "several step sizes": (
        lambda: run(algorithm=pipla.PIPGLA(jnp.asarray([0.1, 0.2, 0.3]))),
        ValueError,
        "step_size",
    ),
    "several smoothings": (
        lambda: run(algorithm=pipla.MYIPLA(0.1, jnp.asarray([0.1, 0.2, 0.3]))),
        ValueError,
        "smoothing",
    ),
    "unknown theta_scale": (lambda: pipla.PGD(0.1, theta_scale="best"), ValueError, "theta_scale"),
    "one negative theta_scale": (
        lambda: pipla.PGD(0.1, theta_scale={"a": 1.0, "b": -1.0}),
        ValueError,
        "theta_scale",
    ),
    "theta_scale of another structure": (
        lambda: run(algorithm=pipla.PIPGLA(0.1, theta_scale={"a": 1.0})),
        ValueError,
        "theta_scale",
    ),
    "theta_scale of another shape": (
        lambda: run(algorithm=pipla.PIPGLA(0.1, theta_scale=jnp.ones(2))),
        ValueError,
        "theta_scale",
    ),
    "unknown theta_update": (
        lambda: pipla.PGD(0.1, theta_update="newton"),
        ValueError,
        "theta_update",
    ),
    "no moves": (lambda: pipla.SOUL(0.1, num_moves=0), ValueError, "num_moves"),
    "half a move": (lambda: pipla.SOUL(0.1, num_moves=1.5), TypeError, "num_moves"),
    "noise averaged away": (lambda: pipla.IPLA(0.1, num_moves=2), ValueError, "theta_noise"),
    "optimizer with noise": (
        lambda: pipla.IPLA(0.1, theta_optimizer=optax.sgd(0.1)),
        ValueError,
        "theta_optimizer",
    ),
    "optimizer of a frozen theta": (
        lambda: pipla.PGD(0.1, theta_update="frozen", theta_optimizer=optax.sgd(0.1)),
        ValueError,
        "theta_optimizer",
    ),
    "optimizer not called": (
        lambda: pipla.PGD(0.1, theta_optimizer=optax.sgd),
        TypeError,
        "theta_optimizer",
    ),
    "odd number of antithetic particles": (
        lambda: run(algorithm=pipla.PIPGLA(0.1, antithetic=True), particles=PARTICLES[:3]),
        ValueError,
        "antithetic",
    ),
    # the model
    "empty model": (lambda: pipla.Model(None), ValueError, "smooth and nonsmooth"),
    "smooth not a function": (lambda: pipla.Model(3.0), TypeError, "smooth"),
    "term class instead of instance": (
        lambda: pipla.Model(smooth, pipla.prox.L1),
        TypeError,
        r"nonsmooth.*L1\(\)",
    ),
    "function as term": (lambda: pipla.Model(smooth, jnp.abs), TypeError, "nonsmooth"),
    "metric not a function": (lambda: pipla.Model(smooth, metric=2.0), TypeError, "metric"),
    "smooth returns a vector": (lambda: run(returning(lambda t, x: x)), ValueError, "smooth"),
    "smooth returns a pair": (lambda: run(returning(lambda t, x: (t, t))), ValueError, "smooth"),
    "smooth returns nothing": (lambda: run(returning(lambda t, x: None)), ValueError, "smooth"),
    "smooth returns complex": (
        lambda: run(returning(lambda t, x: jax.lax.complex(t, t))),
        TypeError,
        "smooth",
    ),
    "smooth returns an integer": (
        lambda: run(returning(lambda t, x: jnp.asarray(3))),
        TypeError,
        "smooth",
    ),
    "model not a Model": (lambda: run(smooth), TypeError, "model"),
    "model None": (lambda: pipla.run(None, pipla.PGD(0.1), **_rest()), TypeError, "model"),
    "on a missing part of theta": (
        lambda: run(on(theta="gamma", x="w"), **PARTS),
        ValueError,
        r"on\(theta='gamma'\).*'a', 'b'",
    ),
    "on a missing part of x": (
        lambda: run(on(theta="a", x="u"), **PARTS),
        ValueError,
        r"on\(x='u'\).*'v', 'w'",
    ),
    "on a part of a single array": (
        lambda: run(pipla.Model(smooth, pipla.prox.L1().on(x="w"), data=Y)),
        ValueError,
        r"on\(x='w'\)",
    ),
    "a term on a whole dict": (
        lambda: run(pipla.Model(dict_smooth, pipla.prox.L1(), data=Y), **PARTS),
        TypeError,
        r"L1.*on\(x=",
    ),
    # the algorithm
    "preset instead of algorithm": (lambda: run(algorithm=pipla.PIPGLA), TypeError, "algorithm"),
    "class instead of algorithm": (
        lambda: run(algorithm=pipla.algorithms.Euler),
        TypeError,
        r"algorithm.*Euler\(\)",
    ),
    "name instead of algorithm": (lambda: run(algorithm="PIPGLA"), TypeError, "algorithm"),
    "a dict that JAX cannot sort": (
        lambda: pipla.SAPG(smoothing={1: 1.0, "b": 2.0}),
        TypeError,
        "smoothing.*keys of a dict must be sortable",
    ),
    # run
    **{
        f"num_steps {value}": (lambda v=value: run(num_steps=v), error, "num_steps")
        for value, error in ((0, ValueError), (-3, ValueError), (2.5, TypeError), (True, TypeError))
    },
    "burn_in of all steps": (lambda: run(burn_in=5), ValueError, "burn_in"),
    "burn_in beyond all steps": (lambda: run(burn_in=9), ValueError, "burn_in"),
    "negative burn_in": (lambda: run(burn_in=-1), ValueError, "burn_in"),
    "burn_in as a share": (lambda: run(burn_in=0.5), TypeError, "burn_in"),
    "integer as key": (lambda: run(key=0), TypeError, "key.*jax.random.key"),
    "None as key": (lambda: run(key=None), TypeError, "key"),
    "old-style key": (lambda: run(key=jax.random.PRNGKey(0)), TypeError, "key"),
    "array of keys": (lambda: run(key=jax.random.split(KEY, 3)), ValueError, "key"),
    "chunk_size 0": (lambda: run(chunk_size=0), ValueError, "chunk_size"),
    "save not a Save": (lambda: run(save={"moments_every": 1}), TypeError, "save"),
    "Save class": (lambda: run(save=pipla.Save), TypeError, "save"),
    "moments_every 0": (lambda: pipla.Save(moments_every=0), ValueError, "moments_every"),
    "particles_every 0.5": (lambda: pipla.Save(particles_every=0.5), TypeError, "particles_every"),
    "complex quantity": (
        lambda: run(save=pipla.Save(1, quantity=lambda theta, x: x.astype(complex))),
        TypeError,
        "quantity",
    ),
    "empty quantity": (
        lambda: run(save=pipla.Save(1, quantity=lambda theta, x: None)),
        TypeError,
        "quantity",
    ),
    "particles that do not fit the data": (
        lambda: run(particles=jnp.ones((4, 7))),
        TypeError,
        r"smooth\(theta, x, data\) failed.*\[7\]",
    ),
    "smooth of two arguments": (
        lambda: run(model=pipla.Model(lambda theta, x: jnp.sum(x))),
        TypeError,
        "smooth",
    ),
    "progress as a word": (lambda: run(progress="no"), TypeError, "progress"),
    "check as a word": (lambda: run(check="no"), TypeError, "check"),
    "antithetic as a word": (lambda: pipla.PIPGLA(antithetic="no"), TypeError, "antithetic"),
    "True as a step size": (lambda: pipla.PIPGLA(True), TypeError, "step_size"),
    "PGD with noise": (lambda: pipla.PGD(0.1, theta_noise=True), TypeError, "theta_noise.*PGD"),
    "smoothing of PIPULA": (lambda: pipla.PIPULA(0.1, smoothing=0.1), TypeError, "PIPULA.*smooth"),
    "annealed number": (lambda: pipla.Annealed(0.1), TypeError, "scheme"),
    "quantity not a function": (lambda: pipla.Save(quantity=3), TypeError, "quantity"),
    # sweep
    "sweep without algorithms": (lambda: sweep([]), ValueError, "algorithms"),
    "sweep of a preset": (lambda: sweep(pipla.PIPGLA), TypeError, "algorithm"),
    "sweep of numbers": (lambda: sweep([0.1, 0.2]), TypeError, "algorithm"),
    "sweep of a non-model": (lambda: sweep(model=smooth), TypeError, "model"),
    "sweep of kinds": (
        lambda: sweep([pipla.PIPGLA(0.1), pipla.PGD(0.1)]),
        ValueError,
        "algorithms",
    ),
    "sweep of choices": (
        lambda: sweep([pipla.PIPGLA(0.1), pipla.PIPGLA(0.1, antithetic=True)]),
        ValueError,
        "algorithms",
    ),
    "sweep where some numbers are left out": (
        lambda: sweep([pipla.PIPGLA(0.1), pipla.PIPGLA(0.1, 0.2)]),
        ValueError,
        "algorithms",
    ),
    "sweep with a table of step sizes": (
        lambda: sweep(pipla.PIPGLA(jnp.ones((2, 2)))),
        ValueError,
        "step_size",
    ),
    "no replicates": (lambda: sweep(num_replicates=0), ValueError, "num_replicates"),
    "sweep keeps no clouds": (
        lambda: sweep(save=pipla.Save(particles_every=2)),
        ValueError,
        "particles_every",
    ),
    "starts without a replicate axis": (
        lambda: sweep(num_replicates=2, start_per_replicate=True),
        ValueError,
        "theta.*num_replicates",
    ),
    "too few starts": (
        lambda: sweep(
            theta=jnp.zeros(3),
            particles=jnp.ones((2, N, D)),
            num_replicates=3,
            start_per_replicate=True,
        ),
        ValueError,
        "particles.*num_replicates",
    ),
    "theta_scale of another structure in a sweep": (
        lambda: sweep(pipla.PIPGLA(0.1, theta_scale={"a": 1.0})),
        ValueError,
        "theta_scale",
    ),
    "sweep with an integer key": (lambda: sweep(key=0), TypeError, "key"),
    # the rest
    "noncentred of a function": (lambda: pipla.noncentred(smooth), TypeError, "model"),
    "resume of a number": (lambda: pipla.resume(3, MODEL, num_steps=1), TypeError, "result"),
}


def _rest():
    return {"theta": 0.0, "particles": PARTICLES, "num_steps": 5, "key": KEY}


PROGRAMS = ("advance", "_extremes", "stiffness_ratios", "start")


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_before_anything_compiles(name):
    call, error, words = BAD[name]
    with compilations() as compiled, pytest.raises((ValueError, TypeError), match=words) as caught:
        call()
    assert caught.type is error
    assert not [program for program in compiled if any(p in program for p in PROGRAMS)]


@pytest.mark.slow
def test_a_good_run_does_compile():
    # What the test above looks for is there to be found.
    model = pipla.Model(lambda theta, x, y: smooth(theta, x, y) / 10, data=Y)
    with compilations() as compiled:
        run(model, pipla.PGD(theta_scale="auto"), theta=jnp.zeros(()))
    found = {name for name in PROGRAMS if any(name in program for program in compiled)}
    assert found == set(PROGRAMS)


@pytest.mark.slow
def test_particles_of_one_number_need_no_second_axis():
    scalar = pipla.Model(lambda theta, x, y: jnp.sum((y - x) ** 2), data=Y)
    for cloud in (jnp.ones(5), jnp.ones(1), jnp.ones((3, 1))):  # Y has 3 numbers
        assert run(scalar, particles=cloud).particles.shape == cloud.shape
    single = pipla.Model(lambda theta, x, y: (y[0] - x) ** 2, data=Y)
    assert run(single, particles=jnp.ones(3)).particles.shape == (3,)


def test_messages_say_what_was_given():
    with pytest.raises(ValueError, match=r"step_size must be positive and finite, got -0\.1"):
        pipla.PIPGLA(-0.1)
    with pytest.raises(ValueError, match=r"burn_in must be smaller than num_steps = 5, got 7"):
        run(burn_in=7)
    with pytest.raises(TypeError, match=r"theta must be floating, got dtype int64; write 0\.0"):
        run(theta=0)
    with pytest.raises(ValueError, match=r"smooth must return a scalar.*got shape \(3,\)"):
        run(returning(lambda t, x: x))


def test_what_cannot_be_seen_is_not_checked():
    @jax.jit
    def traced(number):
        _checks.positive("number", number)
        _checks.finite("number", number)
        return pipla.PIPGLA(number).step_size

    assert float(traced(-1.0)) == -1.0


@pytest.mark.parametrize("theta", [0.5, np.float64(0.5), jnp.asarray(0.5), np.array(0.5)])
def test_python_numpy_and_jax_numbers_are_one_program(theta):
    run(theta=jnp.zeros(()))
    with compilations() as compiled:
        run(theta=theta, check=False)
    assert not [program for program in compiled if "advance" in program]


def test_theta_and_particles_of_two_dtypes_meet_in_the_wider():
    with jax.numpy_dtype_promotion("standard"):
        result = run(theta=jnp.zeros((), jnp.float32), particles=PARTICLES, check=False)
    assert result.theta_trace.dtype == np.float64


def test_a_likelihood_and_a_term_never_set_the_same_part_of_theta():
    """One scalar theta as noise and as strength: -.92, -.70 or -.37 by the update, in silence."""
    identity, y = pipla.operators.Identity(), np.zeros(3)
    shared = pipla.likelihoods.Gaussian(identity, y, None)
    named = pipla.likelihoods.Gaussian(identity, y, None, theta="scale")
    scale = pipla.prox.LaplaceScale()
    for likelihood, term in (
        (shared, scale.on(theta="noise")),
        (named, pipla.prox.L1().on(x="u") + scale.on(theta="scale", x="v")),
        (named, scale),
    ):
        with pytest.raises(ValueError, match="theta: the likelihood's own part"):
            pipla.Model(likelihood, term)
    for term, path in ((scale, "prior"), (scale.on(theta="scale"), "scale")):
        model = pipla.Model(shared, term)
        assert model.smooth.sets_theta() == ("noise",)
        assert model.nonsmooth.reach() == [((path,), ())]
    apart = pipla.likelihoods.Gaussian(identity, y, None, theta="noise")
    assert pipla.Model(apart, scale.on(theta="scale")).smooth is apart
    pipla.Model(pipla.likelihoods.Gaussian(identity, y, 1.0), scale)
    assert pipla.Model(shared, pipla.prox.L1()).smooth.sets_theta() == ()
