"""Results on disk: everything comes back, nothing is executed, damage has one clear error."""

import collections
import dataclasses
import hashlib
import io
import json
import pickle
import shutil
import zipfile
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipla
from pipla.algorithms.base import REGISTERED
from pipla.engine import archive, packing, storage
from pipla.engine.storage import DamagedResultError

KEY = jax.random.key(1)
TREES = ("theta_trace", "particles", "x_mean", "x_variance", "saved_particles")
NUMBERS = (
    "status", "message", "num_steps", "burn_in", "prox_gap", "seconds", "compile_seconds",
    "versions",
)  # fmt: skip


def nested(theta, x, data):
    value = sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves((theta, x)))
    return value / 2


THETA = {"b": [jnp.asarray(0.5), ({"deep": jnp.zeros((1, 2))},)], "a": jnp.asarray(-1.0)}
PARTICLES = {"w": jnp.ones((4, 3)), "v": (jnp.zeros((4, 2, 2)),)}


def make(algorithm, **options):
    return pipla.run(
        pipla.Model(nested),
        algorithm,
        theta=THETA,
        particles=PARTICLES,
        num_steps=6,
        key=KEY,
        check=False,
        **{"save": pipla.Save(2, 3), "burn_in": 1} | options,
    )


@pytest.fixture(scope="module")
def result():
    scales = jax.tree.map(lambda leaf: 0.5, THETA)
    return make(pipla.MYIPLA(0.1, 0.2, theta_scale=scales, antithetic=True))


@pytest.fixture
def folder(result, tmp_path):
    return result.save(tmp_path / "run")


def members_of(folder):
    """The members of a result's file, by name."""
    with zipfile.ZipFile(folder / "result.pipla") as file:
        return {name: file.read(name) for name in file.namelist()}


def fields_of(folder):
    return json.loads(members_of(folder)["result.json"])["fields"]


def rewrite(folder, members):
    """Write a file with other members and a checksum that is right."""
    with zipfile.ZipFile(folder / "result.pipla", "w") as file:
        file.comment = b"0" * 64
        for name, data in members.items():
            file.writestr(name, data)
    data = (folder / "result.pipla").read_bytes()[:-64]
    (folder / "result.pipla").write_bytes(data + hashlib.sha256(data).hexdigest().encode())


def equal(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_everything_comes_back(result, folder):
    again = pipla.load(folder)
    for name in TREES:
        equal(getattr(result, name), getattr(again, name))
    for name in NUMBERS:
        assert getattr(result, name) == getattr(again, name)
    equal(result.snapshot.leaves, again.snapshot.leaves)
    assert again.snapshot.key() == KEY
    assert again.snapshot.moments_every == 2
    assert again.snapshot.particles_every == 3
    assert again.snapshot.has_quantity is False
    assert eqx.tree_equal(again.algorithm, result.algorithm)
    equal(again.theta, result.theta)
    assert repr(again) == repr(result)


def test_only_the_names_of_this_list_are_fields_of_a_result(result):
    # A new field must be saved, too.
    names = {field.name for field in dataclasses.fields(result)}
    others = {"algorithm", "snapshot", "findings", "numbers", "large", "fixed", "modules"}
    assert names == {*TREES, *NUMBERS, *others}


@pytest.mark.parametrize(
    "algorithm",
    [
        pipla.PGD(0.1, theta_update="frozen"),
        pipla.SOUL(0.1, num_moves=2),
        pipla.PIPGLA(0.1, antithetic=True, reflected=False),
        pipla.PIPULA(0.1),
        pipla.MetropolisAdjusted(0.1, 0.2, theta_scale=0.5),
        pipla.algorithms.Adaptive(pipla.PIPGLA(1.0, theta_noise=False), first=0.7),
    ],
    ids=lambda algorithm: algorithm.label,
)
def test_every_kind_of_algorithm_comes_back(result, algorithm, tmp_path):
    dataclasses.replace(result, algorithm=algorithm).save(tmp_path / "run")
    again = pipla.load(tmp_path / "run").algorithm
    assert type(again) is type(algorithm)
    assert eqx.tree_equal(again, algorithm)


def test_every_algorithm_that_can_be_built_is_known_here():
    kinds = {
        value
        for value in vars(pipla.algorithms).values()
        if isinstance(value, type) and issubclass(value, pipla.algorithms.Algorithm)
    }
    algorithms = pipla.algorithms
    abstract = {algorithms.Algorithm, algorithms.Langevin, algorithms.Wrapper}
    ours = {kind for kind in REGISTERED.values() if kind.__module__.startswith("pipla.")}
    assert kinds - abstract == ours


def test_an_optimizer_is_code_and_not_saved(result, tmp_path):
    algorithm = pipla.PGD(0.1, theta_optimizer=optax.sgd(0.1))
    dataclasses.replace(result, algorithm=algorithm).save(tmp_path / "run")
    again = pipla.load(tmp_path / "run")
    assert again.algorithm is None
    assert repr(again).startswith("Result(theta=")
    again.save(tmp_path / "again")
    assert pipla.load(tmp_path / "again").algorithm is None


class Euler(pipla.algorithms.Langevin):
    """Somebody's own algorithm, which happens to be called as one of ours."""

    secret: object = eqx.field(static=True, default=print)

    def move(self, state, noise, scales, model):
        raise NotImplementedError


def test_an_algorithm_of_ones_own_is_not_mistaken_for_ours(result, tmp_path):
    dataclasses.replace(result, algorithm=Euler(step_size=0.1)).save(tmp_path / "run")
    assert pipla.load(tmp_path / "run").algorithm is None
    assert fields_of(tmp_path / "run")["algorithm"]["kind"].endswith(".Euler")


@settings(max_examples=25, deadline=None)
@given(
    tree=st.recursive(
        st.sampled_from([np.float64(1.5), np.arange(3.0), np.zeros((2, 0), np.float32), None]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(st.text(max_size=4), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_any_nesting_of_dicts_lists_and_tuples_comes_back(tree):
    arrays = {}
    file = io.BytesIO()
    archive.write(file, packing._pack("theta", tree, arrays), arrays)
    again = packing._unpack(*archive.read(file))
    equal(jax.tree.map(np.asarray, tree), again)


def test_keys_that_look_like_paths_or_like_each_other_do_not_mix(result, tmp_path):
    names = ["a.b", "../../escape", "/etc/passwd", "a", "x.npy", "with space", "é", "a\0b", ""]
    theta = {name: np.full((6,), float(i)) for i, name in enumerate(names)}
    theta["a"] = {"b": np.full((6,), 99.0)}
    altered = dataclasses.replace(result, theta_trace=theta)
    altered.save(tmp_path / "deep" / "run")
    equal(pipla.load(tmp_path / "deep" / "run").theta_trace, theta)
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


class Pair(collections.namedtuple("Pair", "one two")):
    pass


class Layer(eqx.Module):
    weight: object
    act: object = print
    size: int = 3


@pytest.mark.parametrize(
    ("theta", "plain", "name"),
    [
        (Pair(np.ones(6), np.ones(6)), {"one": np.ones(6), "two": np.ones(6)}, "Pair"),
        (
            collections.OrderedDict(b=np.ones(6), a=np.zeros(6)),
            {"a": np.zeros(6), "b": np.ones(6)},
            "OrderedDict",
        ),
        (
            {"w": [Layer(np.ones(6))]},
            {"w": [{"weight": np.ones(6), "act": None, "size": 3}]},
            "Layer",
        ),
        ({"f": print, "w": np.ones(6)}, {"f": None, "w": np.ones(6)}, "print"),
        ({"f": jnp.tanh, "w": np.ones(6)}, {"f": None, "w": np.ones(6)}, "tanh"),
    ],
    ids=["namedtuple", "ordered dict", "module", "function", "compiled function"],
)
def test_classes_and_functions_come_back_as_dicts_and_none(theta, plain, name):
    arrays = {}
    packed = packing._pack("theta", theta, arrays)
    assert packing.lost_code(packed) == name
    again = packing._unpack(json.loads(json.dumps(packed)), arrays)
    assert jax.tree.structure(again) == jax.tree.structure(plain)
    assert all(map(np.array_equal, jax.tree.leaves(again), jax.tree.leaves(plain)))


@pytest.mark.parametrize(
    ("theta", "words"),
    [
        ({"a": {1: np.ones(6)}}, r"theta_trace\.a has keys that are not strings"),
        (np.array([None] * 6), "theta_trace has dtype object"),
        (np.array(["text"] * 6), "theta_trace has dtype <U4"),
        (np.asarray(jnp.ones(6, jnp.bfloat16)), "theta_trace has dtype bfloat16"),
    ],
    ids=["integer key", "objects", "text", "bfloat16"],
)
def test_what_cannot_be_saved_is_named_and_nothing_is_written(result, tmp_path, theta, words):
    with pytest.raises(TypeError, match=words):
        dataclasses.replace(result, theta_trace=theta).save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_an_infinite_gap_comes_back(result, tmp_path):
    dataclasses.replace(result, prox_gap=float("inf")).save(tmp_path / "run")
    assert pipla.load(tmp_path / "run").prox_gap == float("inf")


# No code. #


def test_nothing_is_pickled(folder):
    assert {path.name for path in folder.iterdir()} == {"result.pipla"}
    members = members_of(folder)
    json.loads(members.pop("result.json"), parse_constant=pytest.fail)
    with zipfile.ZipFile(folder / "result.pipla") as file:
        assert file.testzip() is None
        for data in members.values():
            assert data.startswith(b"\x93NUMPY")
            assert b"|O" not in data[:128]
            with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, KeyError)):
                pickle.loads(data)


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("code of the file was executed",)


def replace_array(folder, name, data):
    """Write other bytes for one array of the archive."""
    rewrite(folder, members_of(folder) | {name: data})


def first_array(folder):
    return next(name for name in members_of(folder) if name.endswith(".npy"))


def test_an_array_of_objects_is_refused_and_not_executed(folder):
    file = io.BytesIO()
    np.save(file, np.array([Bomb()], dtype=object), allow_pickle=True)
    replace_array(folder, first_array(folder), file.getvalue())
    with pytest.raises(DamagedResultError, match="allow_pickle=False"):
        pipla.load(folder)


def test_a_pickle_in_place_of_the_arrays_is_refused(folder):
    (folder / "result.pipla").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(DamagedResultError):
        pipla.load(folder)


# Damage. #


def edit(folder, change):
    """Change the JSON's fields, and write a checksum that fits."""
    members = members_of(folder)
    content = json.loads(members["result.json"])
    change(content["fields"])
    rewrite(folder, members | {"result.json": json.dumps(content).encode()})


def edit_top(**values):
    def change(folder):
        members = members_of(folder)
        content = json.loads(members["result.json"]) | values
        content = {name: value for name, value in content.items() if value is not None}
        rewrite(folder, members | {"result.json": json.dumps(content).encode()})

    return change


def put(*path, value):
    def change(folder):
        def at(content):
            for key in path[:-1]:
                content = content[key]
            content[path[-1]] = value

        edit(folder, at)

    return change


def drop(name):
    return lambda folder: edit(folder, lambda content: content.pop(name))


def write(data):
    return lambda folder: (folder / "result.pipla").write_bytes(data)


def write_json(data):
    return lambda folder: rewrite(folder, members_of(folder) | {"result.json": data})


def truncate(share):
    def change(folder):
        data = (folder / "result.pipla").read_bytes()
        (folder / "result.pipla").write_bytes(data[: int(share * len(data))])

    return change


def flip_a_byte(folder):
    data = bytearray((folder / "result.pipla").read_bytes())
    data[len(data) // 3] ^= 0xFF
    (folder / "result.pipla").write_bytes(data)


def cut_json(folder):
    data = members_of(folder)["result.json"]
    write_json(data[: int(0.7 * len(data))])(folder)


def huge_header(folder):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    header += b" " * (117 - len(header)) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    replace_array(folder, first_array(folder), data)


def plain_npy(folder):
    with (folder / "result.pipla").open("wb") as file:
        np.save(file, np.ones(3))


def unnamed_array(folder):
    file = io.BytesIO()
    np.save(file, np.ones(3))
    rewrite(folder, members_of(folder) | {"more-99.npy": file.getvalue()})


def compressed(folder):
    members = members_of(folder)
    with zipfile.ZipFile(folder / "result.pipla", "w", zipfile.ZIP_DEFLATED) as file:
        file.comment = b"0" * 64
        for name, data in members.items():
            file.writestr(name, data)
    data = (folder / "result.pipla").read_bytes()[:-64]
    (folder / "result.pipla").write_bytes(data + hashlib.sha256(data).hexdigest().encode())


def rename_field(folder):
    edit(folder, lambda c: c["algorithm"].update(antithetix=c["algorithm"].pop("antithetic")))


def use_twice(folder):
    edit(folder, lambda c: c["x_mean"]["dict"].update(w=c["x_variance"]["dict"]["w"]))


DAMAGE = {
    "arrays missing": lambda folder: rewrite(
        folder, {"result.json": members_of(folder)["result.json"]}
    ),
    "json missing": lambda folder: rewrite(
        folder, {n: d for n, d in members_of(folder).items() if n != "result.json"}
    ),
    "file empty": write(b""),
    "file cut in half": truncate(0.5),
    "file cut near the end": truncate(0.98),
    "file not a zip": write(b"no zip at all"),
    "file a single npy": plain_npy,
    "file compressed": compressed,
    "an array that nothing names": unnamed_array,
    "an array used twice": use_twice,
    "a field with another name": rename_field,
    "an array of impossible size": huge_header,
    "an array that is no npy": lambda folder: replace_array(folder, first_array(folder), b"junk"),
    "a flipped byte": flip_a_byte,
    "json empty": write_json(b""),
    "json cut": cut_json,
    "json not utf-8": write_json(b"\xff\xfe\x00"),
    "json a list": write_json(b"[1, 2]"),
    "json a number": write_json(b"3"),
    "json nested without end": write_json(b"[" * 100_000),
    "json with a name twice": write_json(b'{"format": 2, "format": 2}'),
    "fields a list": edit_top(fields=[]),
    "unknown kind": edit_top(kind="photograph"),
    "a sweep that is none": edit_top(kind="sweep"),
    "status null": put("status", value=None),
    "versions with a number": put("versions", "jax", value=3),
    "more steps than can be counted": put("burn_in", value=10**30),
    "moments every 0 steps": put("snapshot", "moments_every", value=0),
    "saved particles without a period": put("snapshot", "particles_every", value=None),
    "NaN in the json": put("seconds", value=float("nan")),
    "infinity in the json": put("compile_seconds", value=float("inf")),
    "format of the future": edit_top(format=99),
    "format missing": edit_top(format=None),
    "a field missing": drop("burn_in"),
    "a tree missing": drop("theta_trace"),
    "no snapshot": drop("snapshot"),
    "steps as text": put("num_steps", value="six"),
    "steps as a boolean": put("num_steps", value=True),
    "negative steps": put("num_steps", value=-6),
    "other number of steps": put("num_steps", value=7),
    "message as a number": put("message", value=3),
    "versions as text": put("versions", value="1.0"),
    "unknown status": put("status", value="splendid"),
    "unknown structure": put("theta_trace", value={"set": []}),
    "two structures at once": put("theta_trace", value={"list": [], "tuple": []}),
    "structure as text": put("particles", value="particles"),
    "an array that is not there": put("particles", value={"array": "elsewhere"}),
    "an array outside of the folder": put("particles", value={"array": "../../secret"}),
    "an array that is no name": put("particles", value={"array": ["a"]}),
    "algorithm as text": put("algorithm", value="PIPGLA"),
    "algorithm with a negative step": put("algorithm", "step_size", value=-0.1),
    "algorithm with an unknown choice": put("algorithm", "theta_update", value="newton"),
    "algorithm without a kind": put("algorithm", value={"step_size": 0.1}),
    "unknown kind of key": put("snapshot", "key_kind", value="dice"),
    "key of the wrong shape": lambda folder: edit(
        folder, lambda c: c["snapshot"].update(key_data=c["x_mean"]["dict"]["w"])
    ),
    "moments_every as text": put("snapshot", "moments_every", value="often"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_has_one_clear_error(folder, name):
    DAMAGE[name](folder)
    with pytest.raises(DamagedResultError, match="the result in .*run.* is damaged"):
        pipla.load(folder)
    assert issubclass(DamagedResultError, ValueError)


@pytest.mark.parametrize("name", ["nowhere", "empty", "file"])
def test_a_place_without_a_result_is_not_found(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match=r"no pipla result.*result\.pipla.*result\.json"):
        pipla.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        pipla.resume(tmp_path / name, pipla.Model(nested), num_steps=1)


def test_an_unknown_kind_of_algorithm_is_asked_for_at_resume(folder):
    edit(folder, lambda content: content["algorithm"].update(kind="Clever"))
    assert pipla.load(folder).algorithm is None
    with pytest.raises(ValueError, match="algorithm is needed to resume"):
        pipla.resume(folder, pipla.Model(nested), num_steps=1)


def test_only_a_model_is_resumed(folder):
    with pytest.raises(TypeError, match="model must be a pipla.Model, got str"):
        pipla.resume(folder, "0.5", num_steps=1)


# Whole or not there. #


@pytest.mark.parametrize("what", ["write", "fsync", "replace"])
def test_a_failing_save_leaves_the_old_result(result, folder, monkeypatch, what):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    newer = dataclasses.replace(result, message="newer")

    def fail(*args, **kwargs):
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patch:
        if what == "write":
            patch.setattr(storage.archive.np.lib.format, "write_array", fail)
        else:
            patch.setattr(storage._files.os, what, fail)
        with pytest.raises(OSError, match="was not saved to .*run.*unchanged: no space"):
            newer.save(folder)
        with pytest.raises(OSError, match="no space"):
            newer.save(folder.parent / "first")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["run"]
    assert newer.save(folder) == folder
    assert pipla.load(folder).message == "newer"
    assert [path.name for path in folder.rglob("*")] == ["result.pipla"]


def test_saving_again_replaces_the_result_whole(result, folder):
    dataclasses.replace(result, saved_particles=None).save(folder)
    assert pipla.load(folder).saved_particles is None


def test_an_empty_folder_may_be_used_and_parents_are_made(result, tmp_path):
    (tmp_path / "empty").mkdir()
    result.save(tmp_path / "empty")
    result.save(str(tmp_path / "a" / "b" / "run"))
    assert pipla.load(tmp_path / "empty").num_steps == 6
    assert pipla.load(str(tmp_path / "a" / "b" / "run")).num_steps == 6


def foreign_file(path):
    path.write_text("thesis")


def foreign_folder(path):
    path.mkdir()
    (path / "thesis.txt").write_text("thesis")


def foreign_json(path):
    path.mkdir()
    (path / "result.json").write_text("{}")


def result_with_notes(path):
    shutil.copytree(path.parent / "run", path)
    (path / "notes.txt").write_text("thesis")


@pytest.mark.parametrize(
    "make_foreign", [foreign_file, foreign_folder, foreign_json, result_with_notes]
)
def test_what_is_not_ours_is_not_replaced(result, folder, make_foreign):
    target = folder.parent / "mine"
    make_foreign(target)
    before = sorted((p, p.read_bytes()) for p in folder.parent.rglob("*") if p.is_file())
    with pytest.raises(FileExistsError, match="mine.*choose another"):
        result.save(target)
    assert sorted((p, p.read_bytes()) for p in folder.parent.rglob("*") if p.is_file()) == before


# Algorithms of one's own, by registration. #


@pipla.algorithms.register
class Own(pipla.algorithms.Algorithm):
    """Outside of the family: plain Langevin with a state of its own."""

    rate: jax.Array = eqx.field(converter=pipla.algorithms.number, default=0.1)
    flavour: str = eqx.field(static=True, default="plain")

    def init(self, model, theta, particles):
        return pipla.algorithms.State(theta, particles, None, None)

    def step(self, key, state, model):
        slope = model.gradients(state.theta, state.particles)
        noise = jax.random.normal(key, state.particles.shape, state.particles.dtype)
        particles = state.particles - self.rate * slope.particles + jnp.sqrt(2 * self.rate) * noise
        theta = state.theta - self.rate * slope.theta
        info = pipla.algorithms.Info(slope.theta, slope.particles, jnp.zeros((), noise.dtype))
        return state._replace(theta=theta, particles=particles), info


def own_run(num_steps):
    model = pipla.Model(lambda theta, x, y: jnp.sum((x - y - theta) ** 2) / 2, data=jnp.ones(3))
    options = {"theta": jnp.zeros(()), "particles": jnp.zeros((2, 3)), "key": jax.random.key(0)}
    return model, pipla.run(model, Own(flavour="odd"), num_steps=num_steps, burn_in=1, **options)


def test_a_registered_algorithm_of_ones_own_is_resumed_from_disk(tmp_path):
    model, whole = own_run(20)
    own_run(10)[1].save(tmp_path / "run")
    again = pipla.load(tmp_path / "run")
    assert isinstance(again.algorithm, Own)
    assert again.algorithm.flavour == "odd"
    rest = pipla.resume(tmp_path / "run", model, num_steps=10)
    np.testing.assert_array_equal(rest.theta_trace, whole.theta_trace)


def test_a_name_is_registered_once():
    fake = type("Euler", (pipla.algorithms.Euler,), {"__module__": "pipla.algorithms.euler"})
    with pytest.raises(ValueError, match="registered already"):
        pipla.algorithms.register(fake)


# Numbers of algorithms that hold code. #


def wrapped(algorithm):
    return pipla.Annealed(algorithm.with_numbers(step_size=0.05))


@pytest.mark.parametrize("around", [lambda algorithm: algorithm, wrapped], ids=["plain", "wrapped"])
def test_numbers_that_the_run_chose_are_kept_beside_code(tmp_path, around):
    problem = pipla.problems.toy(dimension=3)
    optimizer = optax.sgd(0.1, momentum=0.9)
    left_out = around(pipla.MYPGD(theta_scale="auto", theta_optimizer=optimizer))
    start = {"theta": problem.theta, "particles": problem.particles(KEY, 4), "key": KEY}
    whole = pipla.run(problem.model, left_out, num_steps=20, burn_in=2, **start)
    half = pipla.run(problem.model, left_out, num_steps=10, burn_in=2, **start)
    half.save(tmp_path / "run")
    again = pipla.load(tmp_path / "run")
    assert again.algorithm is None
    again.save(tmp_path / "again")  # and they survive a second journey
    for place in (half, tmp_path / "run", tmp_path / "again"):
        numbers = storage.stored_numbers(place)
        own = numbers if around is not wrapped else numbers["scheme"]
        assert {"step_size", "smoothing", "theta_scale"} <= set(own)
        algorithm = packing.with_stored_numbers(left_out, numbers)
        assert eqx.tree_equal(storage.stored_numbers(half), packing.numbers_of(algorithm))
        rest = pipla.resume(tmp_path / "run", problem.model, num_steps=10, algorithm=algorithm)
        np.testing.assert_array_equal(rest.theta_trace, whole.theta_trace)


def test_numbers_that_were_given_are_not_replaced():
    given = pipla.MYPGD(0.5, 0.25, theta_optimizer=optax.sgd(0.1))
    assert packing.with_stored_numbers(given, {"step_size": np.ones(())}) is given
    missing = pipla.MYPGD(smoothing=0.25, theta_optimizer=optax.sgd(0.1))
    filled = packing.with_stored_numbers(
        missing, {"step_size": np.ones(()), "smoothing": np.ones(())}
    )
    assert (float(filled.step_size), float(filled.smoothing)) == (1.0, 0.25)


# Sweeps. #


@pytest.fixture(scope="module")
def swept():
    model = pipla.Model(nested)
    algorithms = [
        pipla.MYIPLA(s, 0.2, theta_scale=jax.tree.map(lambda leaf: s, THETA)) for s in (0.1, 0.2)
    ]
    options = {"theta": THETA, "particles": PARTICLES, "key": KEY, "num_replicates": 3}
    return model, [
        pipla.sweep(model, algorithms, num_steps=n, burn_in=1, **options) for n in (6, 12)
    ]


def test_a_sweep_comes_back_and_is_resumed_bit_for_bit(swept, tmp_path):
    model, (half, whole) = swept
    storage.save(half, tmp_path / "sweep")
    again = pipla.load(tmp_path / "sweep")
    assert type(again) is pipla.SweepResult
    for field in dataclasses.fields(half):
        one, other = getattr(half, field.name), getattr(again, field.name)
        if field.name not in ("snapshot", "algorithms"):
            same = [jax.tree.structure(one) == jax.tree.structure(other)]
            leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
            assert all([*same, *(np.all(a == b) for a, b in leaves)]), field.name
    assert eqx.tree_equal(half.algorithms, again.algorithms)
    rest = again.resume(model, num_steps=6)
    equal(rest.theta_trace, whole.theta_trace)
    equal(rest.particles, jax.tree.map(np.asarray, whole.particles))


def test_a_sweep_is_not_resumed_as_a_run(swept, tmp_path):
    storage.save(swept[1][0], tmp_path / "sweep")
    with pytest.raises(TypeError, match="holds a sweep; resume it with"):
        storage.load_result(tmp_path / "sweep")


def test_a_sweep_of_algorithms_with_code_comes_back_without_them(tmp_path):
    algorithm = pipla.PGD(0.1, theta_optimizer=optax.sgd(0.1))
    options = {"theta": THETA, "particles": PARTICLES, "key": KEY, "num_replicates": 2}
    found = pipla.sweep(pipla.Model(nested), algorithm, num_steps=3, **options)
    storage.save(found, tmp_path / "sweep")
    assert pipla.load(tmp_path / "sweep").algorithms is None


# Folders of format 1. #

FORMAT_1 = Path(__file__).parent / "attack" / "format_1"


def test_a_folder_of_format_1_loads_resumes_and_is_replaced(tmp_path):
    folder = shutil.copytree(FORMAT_1, tmp_path / "run")
    old = pipla.load(folder)
    assert (old.num_steps, old.burn_in, old.algorithm.label) == (6, 1, "PGD")
    assert float(old.theta["a"]) == 0.5485908035399496
    model = pipla.Model(
        lambda theta, x, y: jnp.sum((x["w"] - theta["a"] - y) ** 2) / 2, data=jnp.arange(2.0)
    )
    start = {"theta": {"a": jnp.asarray(0.5)}, "particles": {"w": jnp.ones((4, 2))}}
    whole = pipla.run(
        model,
        pipla.PGD(0.1),
        **start,
        num_steps=9,
        burn_in=1,
        key=KEY,
        save=pipla.Save(2, 3),
        check=False,
    )
    more = pipla.resume(folder, model, num_steps=3)
    np.testing.assert_allclose(more.theta_trace["a"], whole.theta_trace["a"], rtol=1e-12)
    more.save(folder)
    assert [path.name for path in folder.iterdir()] == ["result.pipla"]
    assert pipla.load(folder).num_steps == 9


@pytest.mark.parametrize("kept", [["result.json"], ["arrays.npz"], ["result.json", "arrays.npz"]])
def test_a_save_killed_before_the_files_of_format_1_are_gone(result, tmp_path, kept):
    folder = shutil.copytree(FORMAT_1, tmp_path / "run")
    result.save(tmp_path / "new")
    shutil.copy(tmp_path / "new" / "result.pipla", folder)
    for name in {"result.json", "arrays.npz"} - set(kept):
        (folder / name).unlink()
    assert pipla.load(folder).snapshot.key() == KEY
    result.save(folder)
    assert [path.name for path in folder.iterdir()] == ["result.pipla"]


# Odd paths. #


@pytest.mark.parametrize("path", [None, 3, b"run", ["run"]])
def test_a_path_that_is_none_is_named(result, path):
    for call in (pipla.load, result.save):
        with pytest.raises(TypeError, match="path must be a string or a pathlib.Path, got"):
            call(path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, ""])
def test_an_impossible_path_holds_nothing(path):
    with pytest.raises(FileNotFoundError):
        pipla.load(path)


def test_only_results_are_saved(tmp_path):
    with pytest.raises(
        TypeError, match=r"result must be a pipla.Result, SweepResult or Fit, got dict"
    ):
        storage.save({}, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []
