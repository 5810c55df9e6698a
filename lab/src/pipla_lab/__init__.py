"""The laboratory of pipla: what supports the library, and what no user of it has to install.

- `pipla_lab.experiments`: the tables and figures of the paper, as published and corrected;
- `pipla_lab.theory`: the bounds of its theorems, and numbers for a run with a given error;
- `pipla_lab.zoo`: small problems whose answers are known, also found as `pipla.zoo`;
- `pipla_lab.data`: the data sets and images of the experiments.

Its commands are `pipla experiment`, `pipla report`, `pipla theory` and `pipla zoo`. It imports
public names of pipla only.
"""

from pipla_lab._version import __version__

__all__ = ["__version__"]
