"""Trained networks on disk."""

import json
import subprocess
import sys
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla import networks
from pipla.engine import storage
from pipla.engine.archive import DamagedResultError

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((20, 3))
LABELS = np.arange(20) % 2


class Small(eqx.Module):
    """A deterministic layer, a function, and a latent layer of other shape in turn."""

    first: eqx.nn.Linear
    last: eqx.nn.Linear
    activation: object

    def __init__(self, units=4, key=KEY):
        one, two = jax.random.split(key)
        self.first = eqx.nn.Linear(3, units, key=one)
        self.last = eqx.nn.Linear(units, 2, key=two)
        self.activation = jnp.tanh

    def __call__(self, x):
        return self.last(self.activation(self.first(x)))


def made(module=None, prior="laplace", rows=20, labels=LABELS, **options):
    module = Small() if module is None else module
    layers = {"last": prior}
    return networks.model(module, FEATURES[:rows], labels[:rows], layers=layers, **options)


@pytest.fixture(scope="module")
def trained():
    return networks.train(made(), num_particles=4, num_steps=60, key=KEY)


def test_a_loaded_network_is_the_one_that_was_saved(trained, tmp_path):
    assert trained.save(tmp_path / "net") == tmp_path / "net"
    # Other numbers in the module, and one observation: neither is used.
    template = made(Small(key=jax.random.key(5)), rows=1)
    again = networks.load(tmp_path / "net", template)
    np.testing.assert_array_equal(again.predict_proba(FEATURES), trained.predict_proba(FEATURES))
    assert repr(again) == repr(trained)
    assert (again.scales, again.scales_mcse) == (trained.scales, trained.scales_mcse)
    for name, weights in trained.particles.items():
        np.testing.assert_array_equal(again.particles[name], weights)
    assert isinstance(again.theta["network"], Small)
    with pytest.raises(ValueError, match="features and labels .* must be given"):
        again.prune(0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", networks.PruningWarning)  # sixty steps learn little
        small, same = again.prune(0.5, features=FEATURES, labels=LABELS), trained.prune(0.5)
    assert small.error(FEATURES, LABELS) == same.error(FEATURES, LABELS)
    assert small.lost == same.lost is not None
    with pytest.raises(ValueError, match="labels must be given with features"):
        again.prune(0.5, features=FEATURES)
    # Once more, from what was loaded.
    again.save(tmp_path / "copy")
    copy = networks.load(tmp_path / "copy", template)
    np.testing.assert_array_equal(copy.predict_proba(FEATURES), trained.predict_proba(FEATURES))


def test_a_module_with_another_function_is_refused(trained, tmp_path):
    trained.save(tmp_path / "net")
    other = eqx.tree_at(lambda module: module.activation, Small(), jax.nn.relu)
    with pytest.raises(ValueError, match="computes something else"):
        networks.load(tmp_path / "net", made(other))


def test_the_noise_of_a_regression_and_a_network_without_biases_come_back(tmp_path):
    module = eqx.nn.MLP(3, "scalar", 3, 1, use_bias=False, use_final_bias=False, key=KEY)
    network = networks.model(module, FEATURES, FEATURES[:, 0], family="regression")
    trained = networks.train(network, num_particles=2, num_steps=40, key=KEY)
    trained.save(tmp_path / "net")
    again = networks.load(tmp_path / "net", network)
    assert again.noise == trained.noise
    np.testing.assert_array_equal(
        again.predict_interval(FEATURES), trained.predict_interval(FEATURES)
    )


def test_a_network_that_does_not_fit_is_named(trained, tmp_path):
    folder = tmp_path / "net"
    trained.save(folder)
    with pytest.raises(ValueError, match=r"layers .*normal.* is not the .*laplace.* of the file"):
        networks.load(folder, made(prior="normal"))
    with pytest.raises(ValueError, match=r"weights of shape .*\(2, 5\).* is not .*\(2, 4\)"):
        networks.load(folder, made(Small(units=5)))
    with pytest.raises(ValueError, match="family Counts is not the Classes of the file"):
        networks.load(folder, made(labels=np.ones((20, 2)), family="poisson"))
    with pytest.raises(TypeError, match="network must be made by `pipla.networks.model`"):
        networks.load(folder, Small())
    with pytest.raises(FileNotFoundError, match="holds no pipla result"):
        networks.load(tmp_path / "nothing", made())


def test_a_deterministic_part_of_other_shape_is_named(tmp_path):
    """Its latent weights fit; the rest of the network does not."""

    class Other(Small):
        """The first layer does not depend on all features."""

        def __init__(self):
            super().__init__()
            self.first = eqx.nn.Linear(3, 4, use_bias=False, key=KEY)

    networks.train(made(), num_particles=2, num_steps=10, key=KEY).save(tmp_path / "net")
    networks.train(made(Other()), num_particles=2, num_steps=10, key=KEY).save(tmp_path / "other")
    with pytest.raises(ValueError, match="theta of shape .*first/bias"):
        networks.load(tmp_path / "other", made())
    with pytest.raises(ValueError, match="theta of shape .*first/bias"):
        networks.load(tmp_path / "net", made(Other()))


def test_what_is_not_a_network_is_named(trained, tmp_path):
    trained.result.save(tmp_path / "run")
    with pytest.raises(TypeError, match=r"holds a Result, not a trained network"):
        networks.load(tmp_path / "run", made())
    assert isinstance(pipla.load(tmp_path / "run"), pipla.Result)


def test_a_damaged_file_is_named(trained, tmp_path):
    file = trained.save(tmp_path / "net") / "result.pipla"
    content = file.read_bytes()
    at = content.index(json.dumps("priors").encode())
    file.write_bytes(content[:at] + content[at:].replace(b'"last"', b'"lost"', 1))
    with pytest.raises(DamagedResultError):
        networks.load(tmp_path / "net", made())
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedResultError):
        networks.load(tmp_path / "net", made())


def test_a_process_that_has_imported_no_more_than_pipla_reads_every_kind(trained, tmp_path):
    """Which kinds there are must not depend on what was imported before."""
    trained.save(tmp_path / "net")
    program = (
        "import sys, pipla\n"
        "assert 'pipla.networks' not in sys.modules\n"
        "print(type(pipla.load(sys.argv[1])).__name__)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "net")]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.stdout.split() == ["SavedNetwork"], found.stderr


def test_every_kind_of_result_is_where_the_table_says():
    for kind, place in storage._KINDS.items():
        of, check = place.load()
        assert f"{of.__module__}:{of.__name__}" == place.of, kind
        assert callable(check)
