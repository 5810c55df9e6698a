"""Running: what is kept, what is logged, and that equal runs give equal rows."""

import dataclasses

import pytest

from pipla_lab.experiments import find, load, names, run
from pipla_lab.experiments.completion.experiment import CompletionExperiment
from pipla_lab.experiments.networks.experiment import NetworkExperiment
from pipla_lab.experiments.registry import UnknownNameError, pick, select
from pipla_lab.experiments.theory.experiment import TheoryExperiment
from pipla_lab.experiments.theta import measure
from pipla_lab.experiments.theta.experiment import ThetaExperiment

QUIET = {"log": lambda line: None, "progress": False}


@pytest.fixture(autouse=True)
def _generated_data(monkeypatch):
    monkeypatch.delenv("PIPLA_DATA", raising=False)


def without_times(rows):
    each = map(dataclasses.asdict, rows)
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in each]


def test_an_interrupted_run_keeps_its_rows_and_resumes(finished, tmp_path, monkeypatch):
    whole, done = measure.row, []

    def stop_after_two(job, entry, *rest):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(entry.id)
        return whole(job, entry, *rest)

    monkeypatch.setattr(measure, "row", stop_after_two)
    options = {"algorithms": ("PPGD", "recommended"), "out": tmp_path / "run", **QUIET}
    with pytest.raises(KeyboardInterrupt):
        run("toy", "tiny", **options)
    kept = load(tmp_path / "run").rows
    assert [row.id for row in kept] == done

    def only_new(job, entry, *rest):
        assert entry.id not in done, "a finished row was run again"
        return whole(job, entry, *rest)

    monkeypatch.setattr(measure, "row", only_new)
    after = run("toy", "tiny", **options)
    assert after.rows[0].seconds == kept[0].seconds  # not recomputed
    # The rows are the same as without the interruption.
    assert without_times(after.rows) == without_times(load(finished).rows)


def test_a_finished_run_runs_nothing_when_asked_again(finished, monkeypatch):
    monkeypatch.setattr(measure, "replicate", lambda *a, **k: pytest.fail("ran again"))
    before = (finished / "results.json").read_bytes()
    run("toy", "tiny", algorithms=("PPGD",), out=finished, **QUIET)
    assert (finished / "results.json").read_bytes() == before


def test_it_says_how_long_it_will_take_before_the_first_row(tmp_path):
    said = []
    run("toy", "tiny", algorithms=("IPLA",), out=tmp_path / "a", log=said.append, progress=False)
    first = next(i for i, line in enumerate(said) if "Estimated duration" in line)
    assert first < next(i for i, line in enumerate(said) if line.startswith("[1/"))


def test_batches_of_replicates_share_no_random_numbers():
    experiment = find("toy")
    preset = dataclasses.replace(experiment.presets["tiny"], batch=2)
    job, _ = experiment.prepare(preset, 0)
    entry = next(e for e in experiment.entries if e.algorithm == "IPLA")
    trace = measure.replicate(job, entry, 20, progress=False).trace
    assert trace.shape == (4, 20)
    assert len({row.tobytes() for row in trace}) == 4


@pytest.mark.parametrize("name", names())
def test_every_experiment_is_well_formed(name):
    experiment = find(name)
    assert {"quick", "paper", "tiny"} <= set(experiment.presets)
    identities = [entry.id for entry in experiment.entries]
    assert len(set(identities)) == len(identities)
    preset = experiment.presets["quick"]
    for entry in experiment.entries:
        assert entry.prox in measure.APPROXIMATION
        if isinstance(experiment, ThetaExperiment):
            found = entry.evaluations(preset, entry.steps(preset))
            count = entry.particles(preset) / preset.num_particles
        elif isinstance(
            experiment, CompletionExperiment
        ):  # methods are not compared by evaluations
            assert entry.num_steps(preset) >= 0
            continue
        elif isinstance(experiment, TheoryExperiment):  # nor are bounds
            continue
        elif isinstance(experiment, NetworkExperiment):
            assert "," not in entry.algorithm  # --algorithms is separated by commas
            continue
        else:
            found, count = entry.evaluations(entry.steps(preset)), entry.num_particles
        assert found <= max(preset.num_steps, preset.num_steps * count)


@pytest.mark.parametrize(
    ("wrong", "near"), [("logistc-laplace", "logistic-laplace"), ("Rates", "rate"), ("toys", "toy")]
)
def test_wrong_names_get_near_matches(wrong, near):
    with pytest.raises(UnknownNameError, match=f"did you mean.*'{near}'"):
        find(wrong)


def test_a_name_like_no_other_gets_the_list():
    with pytest.raises(UnknownNameError, match=r"there are quick, paper"):
        pick("preset", "zzz", ["quick", "paper"])


def test_algorithms_are_selected_by_name_or_variant_whatever_the_case():
    experiment = find("logistic-laplace")
    assert {e.algorithm for e in select(experiment, ["myipla"])} == {"MYIPLA"}
    assert [e.variant for e in select(experiment, ["Recommended"])] == ["recommended"]
    with pytest.raises(UnknownNameError, match="MYIPLA"):
        select(experiment, ["MYPLA"])
