"""Deblurring: the published error, the measures, and the pages with their panels."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from experiments.test_results import ROW_KEYS, THETA_KEYS
from pipla.operators import WindowMean, blur
from pipla.prox import TotalVariation
from pipla_lab.data import deblurring, find_image
from pipla_lab.experiments import find, load, run
from pipla_lab.experiments.images.experiment import ImageExperiment
from pipla_lab.experiments.images.rows import first_lasting
from pipla_lab.experiments.images.watch import record_steps, watch
from pipla_lab.experiments.page import rebuild
from pipla_lab.experiments.published import published_particles, published_problem

QUIET = {"log": lambda line: None, "progress": False}
LAM = jnp.asarray(0.4)


@pytest.fixture(autouse=True)
def _no_data(monkeypatch):
    monkeypatch.delenv("PIPLA_DATA", raising=False)


@pytest.fixture(scope="module")
def tiny():
    return deblurring("camera", crop=32)


@pytest.fixture(scope="module")
def published():
    return published_problem(deblurring("camera", crop=32))


# The published model. #


def test_the_published_prox_reaches_particle_0_only(published):
    theta, particles = jnp.asarray(-1.0), published_particles(published, jax.random.key(0), 4)
    model = published.model
    point = model.solve(theta, particles, 0.0, LAM, model.warm_start(theta, particles))
    _, expected = model.nonsmooth.prox(theta, particles[0], 0.0, LAM)
    np.testing.assert_array_equal(point.x[0], expected)
    assert not point.x[1:].any()
    assert np.abs(point.x[0]).min() > 1


def test_the_corrected_prox_reaches_every_particle(tiny, published):
    theta, particles = jnp.asarray(-1.0), published_particles(published, jax.random.key(0), 4)
    model = tiny.model
    point = model.solve(theta, particles, jnp.zeros(()), LAM, model.warm_start(theta, particles))
    for particle, x in zip(particles, point.x, strict=True):
        np.testing.assert_allclose(x, model.nonsmooth.prox(theta, particle, 0.0, LAM)[1])


def test_the_published_value_is_isotropic_and_its_prox_anisotropic(published):
    x = published_particles(published, jax.random.key(0), 1)[0]
    theta, term = jnp.asarray(0.3), published.model.nonsmooth
    isotropic = TotalVariation(isotropic=True)
    expected = jnp.exp(theta) * isotropic.value(None, x) - x.size * theta
    np.testing.assert_allclose(term.value(theta, x), expected)
    _, point = term.prox(theta, x, 0.0, LAM)
    weight = jnp.exp(theta)
    near, far = (
        TotalVariation(weight, isotropic=kind).prox(None, x, 0.0, LAM)[1] for kind in (False, True)
    )
    assert np.abs(point - near).max() < 1e-6 < 0.01 < np.abs(point - far).max()


def test_published_theta_steps_as_in_the_paper(published):
    """Gradient divided by d, noise √(2 gamma/N) not (E13)."""
    count, step, theta = 4, 0.01, jnp.asarray(-1.0)
    particles = published_particles(published, jax.random.key(0), count)
    quiet, noisy = (
        make(step, 0.4, theta_update="gradient") for make in (pipla.MYPGD, pipla.MYIPLA)
    )

    def moved(algorithm, keys):
        state = algorithm.init(published.model, theta, particles)
        return jax.lax.map(lambda key: algorithm.step(key, state, published.model)[0].theta, keys)

    (still,) = moved(quiet, jax.random.split(jax.random.key(0), 1))
    thrown = moved(noisy, jax.random.split(jax.random.key(1), 200))
    variation = np.mean([TotalVariation(isotropic=True).value(None, x) for x in particles])
    drift = step * (1 - np.exp(-1.0) * variation / particles[0].size)
    np.testing.assert_allclose(still - theta, drift, rtol=1e-6)
    scatter = np.std(thrown)  # its own error: 5 %; five of them
    assert abs(scatter / np.sqrt(2 * step / count) - 1) < 0.25


def test_published_particles_start_at_50(published):
    particles = published_particles(published, jax.random.key(0), 20)
    assert abs(particles.mean() - 50) < 5 * 10 / np.sqrt(particles.size)
    assert abs(particles.std() - 10) < 5 * 10 / np.sqrt(2 * particles.size)


# The problem. #


def test_the_noise_is_a_thousandth_of_the_variance(tiny):
    blurred = np.asarray(tiny.operator.apply(jnp.asarray(tiny.truth)))
    np.testing.assert_allclose(tiny.noise**2, blurred.var() / 1000)
    scatter = np.std(tiny.observed - blurred) / tiny.noise
    assert abs(scatter - 1) < 5 / np.sqrt(2 * tiny.truth.size)
    assert not np.array_equal(tiny.observed, deblurring("camera", crop=32, seed=1).observed)


def test_the_crop_is_the_middle(tiny):
    whole = find_image("camera")
    np.testing.assert_array_equal(tiny.truth, whole[240:272, 240:272])


def test_the_window_is_the_renormalised_box():
    fast = WindowMean(11, (24, 17))
    slow = pipla.operators.convolution(blur.box(11), (24, 17), "renormalised")
    x = jnp.asarray(np.random.default_rng(0).normal(size=(24, 17)))
    np.testing.assert_allclose(fast.apply(x), slow.apply(x), atol=1e-12)
    np.testing.assert_allclose(fast.adjoint(x), slow.adjoint(x), atol=1e-12)
    with pytest.raises(ValueError, match="width must be odd"):
        WindowMean(10, (24, 17))


def test_unknown_protocols_are_refused():
    with pytest.raises(ValueError, match="protocol"):
        deblurring("camera", protocol="bsnr40")


# Measures. #


def test_a_curve_has_converged_when_it_stays_for_as_long_again():
    steps = np.arange(1, 11)
    curve = np.array([0, 1, 1, 0, 1, 1, 1, 1, 1, 1], bool)
    assert first_lasting(curve, steps) == 5
    assert first_lasting(np.array([0, 1, 1, 1, 0, 0, 0, 0, 0, 0], bool), steps) == 2
    assert first_lasting(np.zeros(10, bool), steps) is None


def test_half_of_a_recorded_step_is_recorded():
    at = record_steps(100)
    assert at[0] == 1
    assert at[-1] == 100
    assert {2, 4, 8, 16, 32, 64} <= set(at)


def test_the_estimate_is_the_average_over_the_last_half(tiny):
    algorithm = pipla.RPL()
    key = jax.random.key(3)
    seen = watch(tiny, algorithm, num_particles=2, num_steps=16, key=key, progress=False)
    start_key, run_key = jax.random.split(key)
    whole = pipla.run(
        tiny.model,
        algorithm,
        theta=jnp.asarray(tiny.theta),
        particles=tiny.particles(start_key, 2),
        num_steps=16,
        key=run_key,
        burn_in=0,
        save=pipla.Save(particles_every=1),
        progress=False,
    )
    half = whole.saved_particles[8:]
    np.testing.assert_allclose(seen.mean, half.mean(axis=(0, 1)))
    np.testing.assert_allclose(seen.std, half.std(axis=(0, 1)), rtol=1e-6)
    np.testing.assert_array_equal(seen.result.theta_trace, whole.theta_trace)


# The experiments. #


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One row of each variant, on 32 × 32 pixels."""
    folder = tmp_path_factory.mktemp("deblurring") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PIPLA_DATA", raising=False)
        run("deblurring", "tiny", algorithms=("MYIPLA", "RPL"), out=folder, **QUIET)
    return folder


def test_rows_hold_the_fields_of_every_experiment_and_those_of_images(finished):
    content = json.loads((finished / "results.json").read_text())
    assert [row["variant"] for row in content["rows"]] == ["published", "corrected", "recommended"]
    for row in content["rows"]:
        assert set(row) >= ROW_KEYS
        assert not set(row) & THETA_KEYS  # no theta generated a photograph
        assert all(np.isfinite(row[name]) for name in ("strength", "psnr", "ssim", "particle_mse"))
    assert content["rows"][0]["map_psnr"] is None
    ours = content["rows"][2]
    assert ours["evaluations"] == 600
    assert ours["psnr"] > 30 > content["rows"][0]["psnr"]
    assert set(content["reference"]["images"]) == {"camera"}


def test_the_page_has_panels_and_curves_and_says_why(finished):
    page = (finished / "report.html").read_text()
    names = sorted(path.name for path in (finished / "figures").iterdir())
    assert names == ["camera-curves.png", "camera-panel.png"]
    assert page.count("<img") == 2
    assert "which reads particle 0 only" in page
    assert "4 of 7 rows have not been run" in page
    assert "E5." in page
    assert rebuild(finished).read_text() == page


def test_a_finished_row_is_not_run_again(finished, monkeypatch):
    monkeypatch.setattr(ImageExperiment, "row", lambda *a: pytest.fail("ran again"))
    before = (finished / "results.json").read_bytes()
    run("deblurring", "tiny", algorithms=("RPL",), out=finished, **QUIET)
    assert (finished / "results.json").read_bytes() == before


def test_without_the_data_only_the_camera_is_there(monkeypatch, tmp_path):
    experiment = find("deblurring")
    here = experiment.available(experiment.presets["tiny"])
    assert {entry.detail for entry in here} == {"camera"}
    monkeypatch.setenv("PIPLA_DATA", str(tmp_path))
    assert len(experiment.available(experiment.presets["tiny"])) == 3 * len(here)


def test_the_benchmark_measures_peers_and_oracles(tmp_path):
    wanted = ("recommended", "Wiener", "MAP")
    results = run("deblurring-benchmark", "tiny", algorithms=wanted, out=tmp_path / "out", **QUIET)
    ours, wiener, oracle = results.rows
    assert ours.replicates == len(ours.each["psnr"]) == 2
    assert wiener.strength is None
    assert oracle.map_psnr >= ours.map_psnr - 0.1  # the search has a tolerance
    assert load(tmp_path / "out").rows == results.rows
    page = (tmp_path / "out" / "report.html").read_text()
    assert "chosen by looking at the truth" in page
