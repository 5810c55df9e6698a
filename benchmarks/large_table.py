"""Reading a large CSV file: seconds and memory of `read_table` beside pandas alone.

    python benchmarks/large_table.py [rows]

The file has eight columns in a European dialect: semicolons, decimal commas, thousands separators,
Windows-1252 letters, dates such as 31.12.2024, texts, and integers. What is read is compared with
what was written.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from pipla._data_files import read_table


def frame(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3600, rows), "D")
    return pd.DataFrame(
        {
            "nr": np.arange(1, rows + 1),
            "a": np.round(rng.standard_normal(rows), 4),
            "b": np.round(rng.standard_normal(rows) * 10, 2),
            "c": rng.integers(0, 1000, rows),
            "preis": np.round(rng.uniform(1, 3_000_000, rows), 2),
            "stadt": rng.choice(["Zürich", "Rom", "Paris", "Wien"], rows),
            "tag": days,
            "y": np.round(rng.standard_normal(rows), 6),
        }
    )


def write(path: Path, data: pd.DataFrame) -> None:
    swap = str.maketrans(",.", ".,")
    shown = data.assign(
        preis=[f"{value:,.2f}".translate(swap) for value in data.preis],
        tag=data.tag.dt.strftime("%d.%m.%Y"),
    )
    shown.to_csv(path, sep=";", decimal=",", index=False, encoding="cp1252")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    data = frame(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        write(path, data)
        before = peak()
        began = time.process_time()
        table = read_table(path)
        ours, after = time.process_time() - began, peak()
        began = time.process_time()
        pd.read_csv(path, sep=";", decimal=",", encoding="cp1252")
        pandas = time.process_time() - began
        size = path.stat().st_size / 2**20
    for place, name in enumerate(table.names):
        expected = data[name]
        if name == "tag":
            expected = (expected - pd.Timestamp(0)) / pd.Timedelta(days=1)
        if table.kinds[place] == "text":
            assert table.columns[place].tolist() == expected.tolist(), name
        else:
            np.testing.assert_allclose(table.columns[place], expected.to_numpy(float), err_msg=name)
    print(f"{rows} rows, {size:.0f} MB: {ours:.1f} s of CPU (pandas alone: {pandas:.1f} s)")
    print(f"peak memory {after:.0f} MB, {before:.0f} MB before")
    print(*table.notes, sep="\n")


if __name__ == "__main__":
    main()
