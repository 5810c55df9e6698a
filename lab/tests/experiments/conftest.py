"""One small run that many tests look at."""

import pytest

from pipla_lab.experiments import run

CHOSEN = ("PPGD", "recommended")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder of a tiny run of `toy`, with three rows."""
    folder = tmp_path_factory.mktemp("experiment") / "toy"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PIPLA_DATA", raising=False)
        run("toy", "tiny", algorithms=CHOSEN, out=folder, log=lambda line: None, progress=False)
    return folder
