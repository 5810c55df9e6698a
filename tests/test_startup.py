"""What a first run costs: few programs to compile, none on the way to them, and a cache on disk."""

import os
import stat
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pipla
from pipla.config import default_folder
from pipla.testing import compilations
from pipla.tuning.curvature import LocalGeometry

pytestmark = pytest.mark.slow

# Shapes that no other test uses: a program compiled before would not be counted.
SHAPE = (9, 23)
ENABLE = "from pipla.config import enable_cache; import jax; "
USE = "import jax.numpy as jnp; jax.jit(lambda x: jnp.tanh(x) + 1)(1.0)"


def quadratic(theta, x, data):
    return jnp.sum((x - data) ** 2) + 0.5 * theta**2


def start(columns=SHAPE[1]):
    model = pipla.Model(quadratic, pipla.prox.LaplaceLocation(1.5), jnp.ones(columns))
    particles = np.random.default_rng(0).normal(size=(SHAPE[0], columns))
    return model, jnp.zeros(()), jnp.asarray(particles)


def test_checking_a_model_compiles_nothing():
    model, theta, particles = start()
    with compilations() as programs:
        model.check(theta, particles)
    assert programs == []


def test_the_curvature_is_one_program():
    geometry = LocalGeometry(*start(29))
    with compilations() as programs:
        geometry.curvature(0.5)
    assert len(programs) == 1
    assert "_extremes" in programs[0]


def test_the_scale_of_theta_is_one_program():
    geometry = LocalGeometry(*start(31))
    with compilations() as programs:
        geometry.theta_scale()
    programs = [name for name in programs if "stage" not in name]  # JAX's copy of a NumPy array
    assert len(programs) == 1
    assert "stiffness_ratios" in programs[0]


def run_python(code, **environment):
    drop = ("JAX_", "PIPLA_", "XDG_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_cache_is_kept_in_the_folder_of_the_user_and_for_the_user(tmp_path):
    ran = run_python(ENABLE + "print(enable_cache()); " + USE, XDG_CACHE_HOME=str(tmp_path))
    folder = tmp_path / "pipla" / "programs"
    assert ran.stdout.strip() == str(folder), ran.stderr
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert any(folder.iterdir())


def test_the_cache_may_be_enabled_after_jax_has_compiled(tmp_path):
    code = "import jax, jax.numpy as jnp; jnp.ones(3) + 1; " + ENABLE
    ran = run_python(code + f"enable_cache({str(tmp_path / 'own')!r}); " + USE)
    assert ran.returncode == 0, ran.stderr
    assert any((tmp_path / "own").iterdir())


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"PIPLA_CACHE": "0"}, "None None"),
        ({"JAX_COMPILATION_CACHE_DIR": "/chosen"}, "/chosen /chosen"),
    ],
    ids=["opted out", "chosen"],
)
def test_the_choice_of_the_user_comes_first(environment, expected, tmp_path):
    code = ENABLE + "print(enable_cache(), jax.config.jax_compilation_cache_dir)"
    ran = run_python(code, XDG_CACHE_HOME=str(tmp_path), **environment)
    assert ran.stdout.strip() == expected, ran.stderr
    assert not any(tmp_path.iterdir())


def test_a_folder_that_others_may_write_to_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    ran = run_python(ENABLE + f"enable_cache({str(tmp_path)!r})")
    assert "PermissionError" in ran.stderr
    assert "can be written to by other users" in ran.stderr


def test_importing_pipla_enables_no_cache(tmp_path):
    code = "import pipla, jax; print(jax.config.jax_compilation_cache_dir)"
    assert run_python(code, XDG_CACHE_HOME=str(tmp_path)).stdout.strip() == "None"
    assert not any(tmp_path.iterdir())


def test_the_command_line_uses_the_cache_and_works_without_one(tmp_path):
    code = (
        "import sys, jax; sys.argv = ['pipla', '--help']; from pipla.cli import main\n"
        "try: main()\n"
        "finally: print('CACHE', jax.config.jax_compilation_cache_dir)"
    )
    there = run_python(code, XDG_CACHE_HOME=str(tmp_path))
    assert f"CACHE {tmp_path}/pipla/programs" in there.stdout, there.stderr
    (tmp_path / "file").write_text("")
    nowhere = run_python(code, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert nowhere.returncode == 0, nowhere.stderr
    assert "CACHE None" in nowhere.stdout


def test_a_relative_cache_home_is_ignored(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert default_folder().is_absolute()


def test_the_curvature_has_both_ends_of_the_spectrum():
    # One loop over the two ends must find what two power iterations found.
    eigenvalues = jnp.asarray([-2.0, 0.5, 1.0, 5.0])
    model = pipla.Model(lambda theta, x, data: jnp.sum(data * x**2) / 2, None, eigenvalues)
    curvature = LocalGeometry(model, jnp.zeros(()), jnp.ones((3, 4))).curvature(1.0)
    np.testing.assert_allclose(curvature.largest, 5.0, rtol=1e-6)
    np.testing.assert_allclose(curvature.smallest, -2.0, rtol=1e-4)
    assert isinstance(curvature.largest, jax.Array)
