"""What a fit and a run can do once they are there: files, resuming, tables, figures, ArviZ."""

import dataclasses
import hashlib
import io
import json
import random
import re
import sys
import types
import zipfile
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla._extras import MissingExtraError
from pipla.diagnostics import Finding, autocorrelation
from pipla.engine import packing
from pipla.engine.result import OtherModelWarning
from pipla.engine.storage import DamagedResultError
from pipla.fitting import page as page_of_fit
from pipla.fitting import plots
from pipla.fitting.observer import Look, Observer
from pipla.fitting.record import Record
from pipla.fitting.summary import columns_of
from pipla.fitting.verdict import Estimate, answer_for_x
from pipla.fitting.watch import Watch
from pipla.report import inference_data as arviz_door
from pipla.report.numbers import aligned, numbers_of

pytestmark = pytest.mark.slow  # the two fits compile

LEVELS = np.asarray([1.0, -2.0, 0.5, 30.0])
TOLERANCE = 1e-6


def smooth(theta, x, data):
    levels = jnp.sum((theta["levels of the groups"] - LEVELS) ** 2) / 2
    return jnp.sum((x["w"] - data) ** 2) / 2 + levels


def model():
    term = pipla.prox.LaplaceLocation(1.0).on(theta="place", x="w")
    return pipla.Model(smooth, term, data=jnp.asarray([0.5, 1.5, 1.0]))


def fitted(max_steps):
    return pipla.fit(
        model(),
        theta={"levels of the groups": jnp.zeros(4), "place": jnp.zeros(())},
        x={"w": jnp.zeros(3)},
        num_particles=4,
        max_steps=max_steps,
        tolerance=TOLERANCE,
    )


@pytest.fixture(scope="module")
def fit():
    return fitted(300)


@pytest.fixture(scope="module")
def run():
    problem = pipla.problems.toy(dimension=3)
    options = {"particles": problem.particles(jax.random.key(1), 6), "key": jax.random.key(2)}
    save = pipla.Save(particles_every=10)
    settings = {"num_steps": 60, "burn_in": 20, "save": save, "check": False}
    return pipla.run(problem.model, pipla.PGD(0.1), theta=0.0, **settings, **options)


def fields(thing):
    return {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}


def assert_same(one, other, name=""):
    assert type(one) is type(other) or isinstance(one, jax.Array), name
    if isinstance(one, eqx.Module):
        assert eqx.tree_equal(one, other), name
    elif dataclasses.is_dataclass(one):
        for key in fields(one):
            assert_same(getattr(one, key), getattr(other, key), key)
    else:
        assert jax.tree.structure(one) == jax.tree.structure(other), name
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            assert np.asarray(a).dtype == np.asarray(b).dtype, name
            np.testing.assert_array_equal(a, b)


# Files. #


def test_every_field_of_a_fit_comes_back(fit, tmp_path):
    again = pipla.load(fit.save(tmp_path / "fit"))
    assert type(again) is pipla.Fit
    for name, value in fields(fit).items():
        assert_same(value, getattr(again, name), name)
    assert again.summary() == fit.summary()
    assert repr(again) == repr(fit)
    assert_same(fit.x_samples, again.x_samples)


def test_what_was_seen_comes_back_as_it_was_seen(fit):
    seen = fit.record.observer()
    assert_same(Record.of(seen), fit.record)
    samples = seen.samples(fit.burn_in)[:, 1]
    np.testing.assert_array_equal(samples, fit.x_samples["w"].astype(np.float32))
    again = answer_for_x(seen, fit.burn_in, fit.order, mixed=False)
    shown = (fit.x_mean, fit.x_sd, *fit.x_interval)
    assert_same(tuple(again), tuple(tree["w"] for tree in shown))


def test_a_run_that_was_interrupted_at_once_has_a_record():
    seen = Observer(3, np.random.default_rng(0))
    seen.add(Look(2, np.zeros((2, 4, 3))))
    record = Record.of(seen)
    record.check(4, 3, 5)
    assert_same(Record.of(record.observer()), record)
    with pytest.raises(DamagedResultError, match="looks has shape"):
        record.check(5, 3, 5)


def members_of(folder):
    with zipfile.ZipFile(folder / "result.pipla") as file:
        return {name: file.read(name) for name in file.namelist()}


def forge(folder, members):
    """Write a file with other members and a checksum that fits."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.comment = b"0" * 64
        for name, data in members.items():
            file.writestr(name, data)
    data = buffer.getvalue()[:-64]
    (folder / "result.pipla").write_bytes(data + hashlib.sha256(data).hexdigest().encode())


def places(content, path=()):
    yield path
    if isinstance(content, dict | list):
        children = content.items() if isinstance(content, dict) else enumerate(content)
        for key, child in children:
            yield from places(child, (*path, key))


ODD = [
    None, True, 0, -1, 7, 10**30, 0.5, "", "NaN", [], {}, [[]], {"array": "looks-1"}, {"tuple": []},
    {"dict": {}}, {"list": [None]}, {"float": "inf"}, {"code": True}, {"kind": "os.system"},
]  # fmt: skip


def test_a_forged_fit_is_refused_or_works(fit, tmp_path):
    folder = fit.save(tmp_path / "fit")
    members = members_of(folder)
    every = [path for path in places(json.loads(members["result.json"])) if path]
    rng = random.Random(0)
    refused = 0
    for path in rng.sample(every, 80):
        content = json.loads(members["result.json"])
        place = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = rng.choice(ODD)
        forge(folder, members | {"result.json": json.dumps(content).encode()})
        try:
            found = pipla.load(folder)
        except DamagedResultError:
            refused += 1
            continue
        if isinstance(found, pipla.Fit):
            assert found.summary()
            assert repr(found)
            assert found.x_samples
            columns_of(found)
    assert refused > 60
    content = json.loads(members["result.json"])
    content["fields"]["seconds"] = 7  # which contradicts nothing
    forge(folder, members | {"result.json": json.dumps(content).encode()})
    assert pipla.load(folder).seconds == 7.0


def test_arrays_of_another_shape_are_refused(fit, tmp_path):
    folder = fit.save(tmp_path / "fit")
    members = members_of(folder)
    for name in [name for name in members if name.endswith(".npy")]:
        array = np.load(io.BytesIO(members[name]))
        if name.startswith(("algorithm", "leaves", "key_data")) or array.ndim == 0:
            continue  # numbers of the algorithm, and what only `resume` can judge
        buffer = io.BytesIO()
        np.save(buffer, np.concatenate([array, array]))
        forge(folder, members | {name: buffer.getvalue()})
        with pytest.raises(DamagedResultError):
            pipla.load(folder)


class Pair(NamedTuple):
    first: np.ndarray
    second: float


@dataclasses.dataclass
class Plain:
    ends: dict[str, tuple[float, float]]
    pair: Pair
    rows: list[list[int]]


def test_nested_plain_values_and_named_tuples_are_fields_like_others():
    arrays = {}
    value = Plain({"a": (1.0, float("inf"))}, Pair(np.arange(3), 2.5), [[1], [2, 3], []])
    packed = json.loads(json.dumps(packing.encode(Plain, "plain", value, arrays)))
    again = packing.decode(Plain, "plain", packed, arrays)
    assert (again.ends, again.rows) == (value.ends, value.rows)
    assert type(again.pair) is Pair
    assert again.pair.second == 2.5
    np.testing.assert_array_equal(again.pair.first, value.pair.first)
    packed["ends"]["a"] = [1.0, "two"]
    with pytest.raises(DamagedResultError, match="ends is 'two'"):
        packing.decode(Plain, "plain", packed, {"first-0": np.arange(3)})


# Resuming. #


def test_a_fit_is_resumed_from_its_file_bit_for_bit(fit, tmp_path):
    whole = fitted(410)  # beyond the second verdict
    rest = pipla.load(fit.save(tmp_path / "fit")).resume(model(), max_steps=110)
    timed = {"seconds", "compile_seconds", "message"}
    for name, value in fields(whole).items():
        if name not in timed:
            assert_same(value, getattr(rest, name), name)
    assert rest.seconds > fit.seconds


def test_a_resumed_fit_may_have_another_tolerance(fit):
    loose = fit.resume(model(), max_steps=300, tolerance=10.0, callbacks=[lambda view: "enough"])
    np.testing.assert_array_equal(loose.standing.tolerance, np.full(5, 10.0))
    np.testing.assert_array_equal(fit.standing.tolerance, np.full(5, TOLERANCE))
    assert loose.num_steps > fit.num_steps
    with pytest.raises(ValueError, match="max_steps must be at least 1"):
        fit.resume(model(), max_steps=0)


def test_doubts_are_warnings_that_point_to_the_caller(fit):
    with pytest.warns(pipla.ConvergenceWarning, match="not converged") as caught:
        fit.resume(model(), max_steps=1)
    assert {warning.filename for warning in caught} == {__file__}
    with pytest.warns(pipla.ConvergenceWarning, match="not converged") as caught:
        fitted(300)
    assert {warning.filename for warning in caught} == {__file__}


def test_the_same_step_size_after_a_resume_is_not_taken_for_a_changed_one():
    # Parts whose bias a change of the step size does not reduce are named as artefacts. A fit that
    # stopped with a step that is too long has not changed it.
    one = {"theta": {"levels of the groups": jnp.zeros(4), "place": jnp.zeros(())}}
    watch = Watch(model(), one["theta"], {"w": jnp.zeros((4, 3))}, None, None)
    five = np.ones(5)
    estimate = Estimate(0, 1.5, five, five, 0 * five, np.eye(5), 0.01 * five, (0.0, 0.0, 1.0), ())
    watch._bias = estimate.bias
    assert watch._follow_the_step(estimate) == ()
    watch.begin_again(300)
    assert len(watch._follow_the_step(estimate)) == 5
    assert watch._follow_the_step(estimate._replace(bias=0.5 * five)) == ()
    noisy = estimate._replace(mcse=0.2 * five)  # as of a matrix completion whose x mixes slowly
    assert watch._follow_the_step(noisy) == ()
    watch.may_halve = False  # it has not fallen in any of the halvings
    assert len(watch._follow_the_step(noisy)) == 5


def test_a_bias_is_believed_when_half_the_step_leads_to_the_same_theta():
    # Of correlated features (lab/held_out.py), half the step changed a bias of .13 by .02.
    theta = {"levels of the groups": jnp.zeros(4), "place": jnp.zeros(())}
    watch = Watch(model(), theta, {"w": jnp.zeros((4, 3))}, None, None)
    one = np.ones(5)
    found = Estimate(0, 1.5, one, 0.2 * one, 0 * one, np.eye(5), one, (0.0, 0.0, 1.0), ())
    assert watch.doubt(found) == ""
    assert "to confirm the bias 0.3" in watch.doubt(found._replace(bias=0.3 * one))
    watch._claim = one
    assert watch.doubt(found._replace(theta=1.9 * one, bias=3 * one)) == ""
    moved = watch.doubt(found._replace(theta=np.asarray([1.0, 1, 1, 1, 3])))
    assert moved == "it has changed theta['place'] by 2"


def test_another_model_is_noticed(fit):
    term = pipla.prox.LaplaceLocation(1.0).on(theta="place", x="w")
    other = pipla.Model(smooth, term, data=jnp.asarray([5.0, 1.5, 1.0]))
    with pytest.warns(OtherModelWarning, match="not the one that this result was made with") as got:
        fit.resume(other, max_steps=1)
    (warning,) = [each for each in got if each.category is OtherModelWarning]
    assert warning.filename == __file__


def test_a_fit_is_not_resumed_as_a_run(fit, tmp_path):
    folder = fit.save(tmp_path / "fit")
    with pytest.raises(TypeError, match=r"holds a fit; resume it with `pipla.load\(path\).resume"):
        pipla.resume(folder, model(), num_steps=10)


def test_a_fit_is_not_resumed_with_a_model_of_another_size(fit):
    term = pipla.prox.LaplaceLocation(1.0).on(theta="place", x="w")
    other = pipla.Model(smooth, term, data=jnp.zeros(4))
    with pytest.raises((ValueError, TypeError)):
        fit.resume(other)


# Tables. #


def test_the_summary_of_five_numbers_of_theta_is_readable_at_80_columns(fit):
    lines = fit.summary(most=5).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("NOT CONVERGED after 300 steps of 4 particles")
    assert lines[2].startswith("WARNING: not converged")  # before any number
    rows = [line for line in lines if line.startswith(("theta", "…"))]
    assert len(rows) == 5
    for row, level, error in zip(
        rows, LEVELS, fit.theta_stderr["levels of the groups"], strict=False
    ):
        assert f"{level:.4g}" in row
        assert f"{error:.3g}" in row
    assert any(line.startswith("The std. error is") for line in lines)
    assert len([line for line in fit.summary(most=2).splitlines() if line.startswith("x[")]) == 2
    assert "… 1 more of 3" in fit.summary(most=2)
    with pytest.raises(ValueError, match="most must be at least 1"):
        fit.summary(most=0)


def test_long_names_are_shortened_and_numbers_are_not():
    lines = aligned(["", "mean", "sd"], [["x" * 200, "1.234", "5"], ["short", "-10", "0.25"]])
    assert [len(line) for line in lines] == [80, 80, 80]
    assert lines[1].startswith("…xxx")
    assert lines[1].endswith("1.234     5")
    assert lines[2].endswith("  -10  0.25")


def test_settings_of_modules_do_not_count_as_numbers():
    tree = {"a": np.ones(2), "f": max, "n": 3, "b": np.zeros((1, 2))}
    found = numbers_of("x", [tree, tree], most=3)
    assert found.names == ["x['a'][0]", "x['a'][1]", "x['b'][0, 0]"]
    assert found.total == 4
    np.testing.assert_array_equal(found.values, [[1, 1], [1, 1], [0, 0]])


def test_a_data_frame_has_a_row_per_number(fit):
    columns = columns_of(fit)
    assert {len(column) for column in columns.values()} == {5 + len(fit.parameters) + 3}
    row = list(columns["name"]).index("theta['place']")
    assert columns["estimate"][row] == fit.theta["place"]
    assert columns["low"][row] == fit.theta_interval[0]["place"]
    row = list(columns["name"]).index("x['w'][2]")
    assert columns["part"][row] == "x"
    assert columns["sd"][row] == fit.x_sd["w"][2]
    np.testing.assert_equal(columns["high"][row], fit.x_interval[1]["w"][2])
    assert np.isnan(columns["std_error"][row])


def test_to_pandas(fit):
    pytest.importorskip("pandas")
    frame = fit.to_pandas()
    assert frame.loc["x['w'][0]", "estimate"] == fit.x_mean["w"][0]


def test_a_missing_package_is_named_with_its_extra(fit, run, monkeypatch):
    for name in ("pandas", "arviz", "arviz_base", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"needs the package pandas.*pipla\[pandas\]"):
        fit.to_pandas()
    for thing in (fit, run):
        with pytest.raises(MissingExtraError, match=r"needs the package .*arviz.*pipla\[arviz\]"):
            thing.to_arviz()
        with pytest.raises(MissingExtraError, match=r"matplotlib.*pipla\[report\]"):
            thing.plot()


def test_the_repr_of_a_fit_is_one_short_line(fit):
    assert "\n" not in repr(fit)
    assert len(repr(fit)) < 160
    assert "NOT converged" in repr(fit)


# Figures and pages. #


def titles(figure):
    return [axis.get_title() for axis in figure.axes if axis.get_title()]


def test_a_figure_has_a_row_for_each_number_of_theta_and_one_for_x(fit):
    figure = fit.plot()
    assert len(figure.axes) == 5 * 3 + 3
    assert titles(figure)[-3:] == ["x['w'][0]", "x['w'][1]", "x['w'][2]"]
    figure = fit.plot(most=2)
    assert len(figure.axes) == 2 * 3 + 3
    assert "2 of 5 numbers of theta" in figure.get_suptitle()
    figure.savefig(io.BytesIO(), format="png")  # draws


def test_the_figure_shows_the_estimates_of_both_step_sizes(fit):
    values = plots.theta_numbers(fit).values[4]
    coarse, fine = fit.theta_trace.coarse["place"], fit.theta_trace.fine["place"]
    series = plots._series(fit, "place", values, coarse, fine)
    at_step, at_half, at_zero = series.step_sizes.estimates
    ratio = (at_step - at_zero) / (at_half - at_zero)  # of the biases: what the dashed curve draws
    np.testing.assert_allclose(ratio, 2**series.step_sizes.order)
    np.testing.assert_allclose(at_half - at_zero, fit.theta_bias["place"], atol=1e-12)
    assert at_zero == fit.theta["place"] == series.estimate
    assert series.interval == (fit.theta_interval[0]["place"], fit.theta_interval[1]["place"])


def test_a_figure_of_a_number_without_error_is_drawn(fit):
    infinite = jax.tree.map(lambda leaf: np.full_like(leaf, np.inf), fit.theta)
    flat = dataclasses.replace(fit, theta_stderr=infinite, theta_interval=(infinite, infinite))
    flat.plot(most=1).savefig(io.BytesIO(), format="png")
    assert "inf" in flat.summary()


def test_the_report_is_one_page_with_the_warnings_on_top(fit, tmp_path, monkeypatch):
    monkeypatch.setattr(page_of_fit, "MOST_DRAWN", 1)  # drawing all takes seconds
    hostile = dataclasses.replace(fit, findings=(Finding("x", "<script>alert(1)</script>"),))
    path = hostile.report(tmp_path / "made" / "report.html")
    page = path.read_text("utf-8")
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings[:3] == ["Warnings", "What to conclude", "Theta"]
    assert "do not rely on the estimate" in page or "do not use the estimate" in page
    assert "callback" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "data:image/png;base64," in page
    assert not re.search(r"(src|href)='?\"?https?:", page)
    assert fit.reasons[0] in page.replace("&#x27;", "'")
    quiet = dataclasses.replace(fit, findings=()).report(tmp_path / "quiet.html")
    assert "<h2>Warnings" not in quiet.read_text("utf-8")
    with pytest.raises(OSError, match="cannot be written"):
        fit.report(tmp_path)


# ArviZ. #


@pytest.fixture(params=["new", "old"])
def arviz(request, monkeypatch):
    """Stands for either generation of ArviZ: what it is given is what it returns."""
    new, old = types.ModuleType("arviz_base"), types.ModuleType("arviz")
    new.from_dict = lambda groups, dims, coords, check_conventions: groups
    old.dict_to_dataset = lambda group, dims, coords: group
    old.InferenceData = lambda **groups: groups
    monkeypatch.setitem(sys.modules, "arviz_base", new if request.param == "new" else None)
    monkeypatch.setitem(sys.modules, "arviz", old if request.param == "old" else None)
    monkeypatch.setattr(
        arviz_door.metadata, "version", lambda _: "1.3.0" if request.param == "new" else "0.23.4"
    )


@pytest.mark.usefixtures("arviz")
def test_particles_are_chains_and_theta_has_a_group_of_its_own(fit):
    groups = fit.to_arviz()
    draws = len(fit.x_samples["w"])
    assert groups["posterior"]["x.w"].shape == (4, draws, 3)
    assert set(groups["theta"]) == {"theta.levels of the groups", "theta.place"}
    trace = groups["theta"]["theta.place"]
    np.testing.assert_array_equal(trace[0], fit.theta_trace.fine["place"][fit.burn_in :])
    assert groups["theta"]["theta.levels of the groups"].shape == (1, 300 - fit.burn_in, 4)


@pytest.mark.usefixtures("arviz")
def test_saved_particles_of_a_run_are_chains_after_burn_in(run):
    groups = run.to_arviz()
    x = groups["posterior"]["x"]
    assert x.shape == (6, 4, 3)
    np.testing.assert_array_equal(x[:, -1], run.particles)
    np.testing.assert_array_equal(x[2, 0], run.saved_particles[2, 2])
    np.testing.assert_array_equal(groups["theta"]["theta"][0], run.theta_trace[20:])


@pytest.mark.usefixtures("arviz")
def test_the_last_particles_of_a_run_are_draws_of_one_chain(run):
    bare = dataclasses.replace(run, saved_particles=None)
    x = bare.to_arviz()["posterior"]["x"]
    np.testing.assert_array_equal(x[0], run.particles)


def test_arviz_itself(fit, run):
    pytest.importorskip("arviz_base")
    for thing in (fit, run):
        data = thing.to_arviz()
        assert data["theta"].sizes["chain"] == 1
        assert data["posterior"].sizes["chain"] > 1


# Plain runs. #


def test_the_summary_of_a_run(run):
    lines = run.summary().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"PGD: {run.status.value} after 60 steps of 6 particles")
    (row,) = [line for line in lines if line.startswith("theta")]
    assert row.split() == [
        "theta", f"{run.theta:.4g}", f"{run.theta_mcse:.2g}", f"{run.theta_last:.4g}",
    ]  # fmt: skip
    (row,) = [line for line in lines if line.startswith("x[1]")]
    assert row.split()[1:] == [f"{run.x_mean[1]:.4g}", f"{np.sqrt(run.x_variance[1]):.3g}"]
    bare = dataclasses.replace(run, x_mean=None, x_variance=None)
    assert "x[1]" not in bare.summary()


def test_the_figure_of_a_run(run):
    figure = run.plot()
    assert len(figure.axes) == 2 + 3
    assert titles(figure) == ["trace", "autocorrelation", "x[0]", "x[1]", "x[2]"]
    dataclasses.replace(run, saved_particles=None).plot().savefig(io.BytesIO(), format="png")


class Shifted(eqx.Module):
    shift: jax.Array
    function: object = jnp.tanh
    power: int = 2


@pytest.mark.usefixtures("arviz")
def test_a_run_of_modules_is_shown_without_their_settings():
    found = pipla.run(
        pipla.Model(lambda theta, x, data: jnp.sum((x.shift - theta.shift) ** 2 + x.shift**2) / 2),
        pipla.PGD(0.1),
        theta=Shifted(jnp.zeros(3)),
        particles=Shifted(jnp.ones((4, 3))),
        num_steps=30,
        key=jax.random.key(0),
        check=False,
    )
    rows = [line.split()[0] for line in found.summary().splitlines() if ".shift[" in line]
    assert rows == [f"{name}.shift[{i}]" for name in ("theta", "x") for i in range(3)]
    assert len(found.plot(most=2).axes) == 2 * 2 + 3
    groups = found.to_arviz()
    assert groups["posterior"]["x.shift"].shape == (1, 4, 3)
    assert groups["theta"]["theta.shift"].shape == (1, 15, 3)


def test_autocorrelation_of_series_that_can_be_done_by_hand():
    np.testing.assert_allclose(autocorrelation([1.0, -1.0, 1.0, -1.0]), [1, -0.75, 0.5, -0.25])
    np.testing.assert_array_equal(autocorrelation(np.ones(5)), np.zeros(5))
    both = autocorrelation(np.stack([[1.0, -1.0, 1.0, -1.0], [2.0, 0.0, 2.0, 0.0]], axis=1))
    np.testing.assert_allclose(both[:, 0], both[:, 1])
