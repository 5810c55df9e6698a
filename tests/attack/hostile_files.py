"""Hostile files: a seeded generator of damaged, forged and malicious results.

Each attack changes a folder that holds an honest result. Those called `accident` leave the checksum
as it was, so that the result must be refused; those called `forgery` write a checksum that fits, so
that the result may load if it is consistent, but must never raise a raw error, execute anything or
take much more memory than the honest file.
"""

import hashlib
import io
import json
import os
import pickle
import random
import shutil
import time
import tracemalloc
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import honest
import jax
import numpy as np

import pipla
from pipla.engine.storage import DamagedResultError

FILE = "result.pipla"
FORMAT_1 = Path(__file__).parent / "format_1"
ODD = [
    None, True, False, 0, -1, 1, 7, 10**9, 10**30, -(10**400), 0.5, -0.0, 1e308, "", "NaN", "inf",
    "auto", "../../secret", "\ud800", "é\0", [], {}, [[]], {"array": "particles-1"}, {"array": 3},
    {"dict": {}}, {"list": []}, {"tuple": [None]}, {"float": "nan"}, {"float": "seven"},
    {"code": True}, {"kind": "Euler"}, {"kind": "Adaptive", "scheme": None}, {"kind": "os.system"},
    {"key": {"kind": "threefry2x32", "data": None}}, {"key": 3}, {"set": []}, "x" * 10_000,
]  # fmt: skip


class Bomb:
    """Code that a pickle would run: it creates a file."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def members_of(folder):
    with zipfile.ZipFile(folder / FILE) as file:
        return {name: file.read(name) for name in file.namelist()}


def sealed(folder, data):
    """Write bytes that end in a placeholder, with the checksum in its place."""
    data = data[:-64]
    (folder / FILE).write_bytes(data + hashlib.sha256(data).hexdigest().encode())


def forge(folder, members, compression=zipfile.ZIP_STORED):
    """Write an archive of these members (a dict, or pairs) with a checksum that fits."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.comment = b"0" * 64
        for name, data in members.items() if isinstance(members, dict) else members:
            file.writestr(name, data, compression)
    sealed(folder, buffer.getvalue())


def npy(array, allow_pickle=False):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def places(content, path=()):
    """All paths into a JSON value."""
    yield path
    children = content.items() if isinstance(content, dict) else ()
    children = enumerate(content) if isinstance(content, list) else children
    for key, child in children:
        yield from places(child, (*path, key))


# Accidents. #


def accident_bit(folder, chance):
    data = bytearray((folder / FILE).read_bytes())
    for _ in range(chance.choice([1, 1, 1, 2, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    (folder / FILE).write_bytes(data)


def accident_cut(folder, chance):
    data = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(data[: chance.randrange(len(data))])


def accident_middle(folder, chance):
    data = (folder / FILE).read_bytes()
    first = chance.randrange(len(data))
    last = min(len(data), first + chance.choice([1, 64, 4096]))
    if chance.random() < 0.5:
        data = data[:first] + data[last:]
    else:
        data = data[:first] + bytes(last - first + 1) + data[last:]
    (folder / FILE).write_bytes(data)


def accident_longer(folder, chance):
    with (folder / FILE).open("ab") as file:
        file.write(chance.randbytes(chance.choice([1, 64, 5000])))


def accident_mixed(folder, chance):
    """The beginning of one save, the end of another."""
    mine = (folder / FILE).read_bytes()
    pipla.load(folder)
    other = mine.replace(b"completed", b"cumpleted")
    cut = chance.randrange(mine.index(b"completed") + 9, len(mine))
    (folder / FILE).write_bytes(other[:cut] + mine[cut:])


def accident_other(folder, chance):
    """Not a file of ours, or no file at all."""
    path = folder / FILE
    path.unlink()
    kind = chance.choice(
        ["noise", "empty", "folder", "loop", "pipe", "device", "sparse", "dangling"]
    )
    if kind == "noise":
        path.write_bytes(chance.randbytes(chance.randrange(1, 5000)))
    elif kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to(chance.choice(["/dev/zero", "/dev/null", "/dev/full"]))
    elif kind == "dangling":
        path.symlink_to(folder / "nowhere")
    else:
        with path.open("wb") as file:
            file.truncate(2**42)


# Forgeries. #


def forgery_json(folder, chance):
    """Values of other types, names that are gone, new or changed."""
    members = members_of(folder)
    content = json.loads(members["result.json"])
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        path = chance.choice([path for path in places(content) if path])
        place = content
        for key in path[:-1]:
            place = place[key]
        change = chance.choice(["put", "put", "put", "drop", "rename", "copy"])
        if change == "put":
            place[path[-1]] = chance.choice(ODD)
        elif change == "drop":
            del place[path[-1]]
        elif change == "rename" and isinstance(place, dict):
            name = path[-1]
            letter = chance.randrange(max(len(name), 1))
            place[name[:letter] + "_" + name[letter + 1 :]] = place.pop(name)
        else:
            other = chance.choice([path for path in places(content) if path])
            value = content
            for key in other:
                value = value[key]
            place[path[-1]] = json.loads(json.dumps(value))
    forge(folder, members | {"result.json": json.dumps(content).encode()})


def forgery_text(folder, chance):
    """JSON that is none, or that is too large, too deep, or twice there."""
    members = members_of(folder)
    text = members["result.json"]
    where = chance.randrange(len(text))
    kind = chance.randrange(9)
    texts = [
        lambda: b"[" * chance.choice([10, 1000, 100_000]),
        lambda: b"[" * 90_000 + b"]" * 90_000,
        lambda: b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        lambda: b"[" + b"[]," * 300_000 + b"[]]",
        lambda: text[:where] + chance.randbytes(3) + text[where:],
        lambda: text[:where],
        lambda: text.replace(b'"num_steps": 12', b'"num_steps": ' + b"9" * 50_000),
        lambda: b" " * 9_000_000 + text,
        lambda: text.replace(b'"burn_in"', b'"num_steps": 12, "burn_in"', 1),
    ]
    forge(folder, members | {"result.json": texts[kind]()})


def forgery_array(folder, chance):
    """Other arrays: other shapes, dtypes, headers, pickles."""
    members = members_of(folder)
    name = chance.choice([name for name in members if name.endswith(".npy")])
    array = np.load(io.BytesIO(members[name]))
    marker = folder.parent / "executed"
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%s), }"

    def head(shape, length=118):
        text = (header % shape).ljust(length - 1) + b"\n"
        return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text

    changes = [
        lambda: npy(array.reshape(-1)[: max(array.size - 1, 0)]),
        lambda: npy(np.asarray(array, np.float32)),
        lambda: npy(np.asarray(array, np.int64 if array.dtype.kind == "f" else np.float64)),
        lambda: npy(array.astype(array.dtype.newbyteorder(">"))),
        lambda: npy(np.asfortranarray(np.atleast_2d(array))),
        lambda: npy(array[..., None]),
        lambda: npy(np.full_like(array, np.nan if array.dtype.kind == "f" else 0)),
        lambda: npy(np.array(["text"])),
        lambda: npy(np.zeros(3, [("a", "f8"), ("b", "i4")])),
        lambda: npy(np.zeros((0, 3))),
        lambda: npy(np.array([Bomb(marker)], object), allow_pickle=True),
        lambda: pickle.dumps(Bomb(marker)),
        lambda: head(b"1000000000000,") + members[name][128:],
        lambda: head(b"-1,") + members[name][128:],
        lambda: head(b"9" * 60 + b",") + members[name][128:],
        lambda: head(b"(" * 9000, 20_000),
        lambda: head(b"__import__('os').mkdir('%s')" % str(marker).encode(), 400),
        lambda: b"\x93NUMPY" + chance.randbytes(300),
        lambda: members[name][: chance.randrange(len(members[name]))],
        lambda: members[chance.choice(list(members))],
    ]
    forge(folder, members | {name: chance.choice(changes)()})


def forgery_zip(folder, chance):
    """Bombs, names twice, members that nothing names, other forms of zip archives."""
    members = members_of(folder)
    zeros = npy(np.zeros(2_000_000))
    large = chance.random() < 0.1
    name = chance.choice([name for name in members if name.endswith(".npy")])
    swapped = dict(
        zip(
            members,
            random.Random(chance.random()).sample(list(members.values()), len(members)),
            strict=True,
        )
    )
    kind = chance.randrange(9)
    if kind == 0:
        forge(folder, members | {"more-99.npy": zeros}, zipfile.ZIP_DEFLATED)
    elif kind == 1:
        forge(
            folder,
            members | {name: zeros},
            chance.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2]),
        )
    elif kind == 2:
        sealed(folder, zip_bomb((500 if large else 64) * 2**20))
    elif kind == 3:
        forge(folder, {**members, "../../escape.npy": npy(np.zeros(3))})
    elif kind == 4:
        forge(folder, swapped)
    elif kind == 5:
        forge(folder, {f"m-{i}.npy": b"" for i in range(5000)} | members)
    elif kind == 6:
        forge(folder, members | {"executed.py": b"import os", "__init__.py": b""})
    else:  # sizes and counts in the table of contents that lie
        data = bytearray((folder / FILE).read_bytes())
        table = data.rindex(b"PK\1\2") if kind == 7 else data.rindex(b"PK\5\6")
        for _ in range(3):
            place = table + chance.randrange(4, 22 if kind == 8 else 46)
            data[place] = chance.choice([0, 1, 127, 255])
        sealed(folder, bytes(data))


def zip_bomb(size):
    """An archive of one array of zeros, about a thousandth of `size` bytes long."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    header = npy(np.zeros(0)).replace(b"(0,)", b"(%d,)" % (size // 8))[:128]
    packed, crc, block = compressor.compress(header), zlib.crc32(header), bytes(2**20)
    for _ in range(size // 2**20):
        packed += compressor.compress(block)
        crc = zlib.crc32(block, crc)
    packed += compressor.flush()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.comment = b"0" * 64
        file.writestr("bomb.npy", packed)
        info = file.infolist()[0]
        info.CRC, info.file_size, info.compress_type = crc, size + len(header), zipfile.ZIP_DEFLATED
    return buffer.getvalue()


def forgery_format_1(folder, chance):
    """The two files of pipla 0.1, damaged: they have no checksum."""
    shutil.rmtree(folder)
    shutil.copytree(FORMAT_1, folder)
    text, arrays = folder / "result.json", folder / "arrays.npz"
    path = chance.choice([text, arrays])
    data = bytearray(path.read_bytes())
    kind = chance.randrange(8)
    if kind < 3:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    elif kind == 3:
        path.write_bytes(data[: chance.randrange(len(data))])
    elif kind == 4:
        content = json.loads(text.read_text())
        place = content if chance.random() < 0.5 else content["snapshot"]
        place[chance.choice(list(place))] = chance.choice(ODD)
        text.write_text(json.dumps(content))
    elif kind == 5:
        bomb = zip_bomb(64 * 2**20)
        with zipfile.ZipFile(io.BytesIO(bomb)) as file:
            file.comment = b""
        arrays.write_bytes(bomb[:-66] + b"\0\0")
    elif kind == 6:
        path.unlink()
        os.mkfifo(path)
    else:
        np.savez(arrays, a=np.array([Bomb(folder.parent / "executed")], object))


ATTACKS = [
    *[accident_bit] * 6, accident_cut, accident_middle, accident_longer, accident_mixed,
    accident_other, *[forgery_json] * 6, forgery_text, *[forgery_array] * 3, forgery_zip,
    *[forgery_format_1] * 3,
]  # fmt: skip


# The judge. #


class Verdict:
    """What happened to hostile files: counts, and sentences about what must not happen."""

    def __init__(self):
        self.counts, self.failures, self.peak, self.slowest = Counter(), [], 0.0, 0.0


def attack_files(folder, count, seed=0, first=0):
    """Load `count` hostile files; each time one of the attacks on an honest result, by chance.

    File number n depends on the seed and n only: `first=n, count=1` repeats it.
    """
    verdict = Verdict()
    result = honest.run(num_particles=400)
    original = Path(folder) / "honest"
    result.save(original)
    size = (original / FILE).stat().st_size
    place = Path(folder) / "victim"
    expected = pipla.load(original)
    usable(expected)  # compiles
    for number in range(first, first + count):
        chance = random.Random(f"{seed}-{number}")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(original, place)
        attack = chance.choice(ATTACKS)
        attack(place, chance)
        what = f"{attack.__name__} {seed}-{number}"
        tracemalloc.start()
        began = time.perf_counter()
        try:
            loaded = pipla.load(place)
            outcome = "same" if same(loaded, expected) else "loaded"
        except (DamagedResultError, FileNotFoundError) as error:
            outcome, loaded = "refused", None
            if len(str(error)) < 40:
                verdict.failures.append(f"{what}: no sentence: {error}")
        except Exception as error:
            outcome, loaded = "raw", None
            verdict.failures.append(f"{what}: raw {type(error).__name__}: {error}")
        verdict.slowest = max(verdict.slowest, time.perf_counter() - began)
        peak = tracemalloc.get_traced_memory()[1] / size
        tracemalloc.stop()
        if peak > 4:
            verdict.failures.append(f"{what}: {peak:.1f} times the memory of the honest file")
        verdict.peak = max(verdict.peak, peak)
        if outcome == "loaded" and attack.__name__.startswith("accident"):
            verdict.failures.append(f"{what}: an altered file was loaded")
        if loaded is not None:
            broken = usable(loaded)
            if broken:
                verdict.failures.append(f"{what}: loaded, but then {broken}")
        verdict.counts[f"{attack.__name__.split('_')[0]}: {outcome}"] += 1
    if (Path(folder) / "executed").exists():
        verdict.failures.append("code of a file was executed")
    strangers = {path.name for path in Path(folder).iterdir()} - {"honest", "victim"}
    if strangers:
        verdict.failures.append(f"written outside of the folder: {sorted(strangers)}")
    return verdict


def same(one, other):
    """Whether two results are equal."""
    one, other = (jax.tree.flatten(vars(r) | {"snapshot": vars(r.snapshot)}) for r in (one, other))
    return one[1] == other[1] and all(
        np.array_equal(a, b) for a, b in zip(one[0], other[0], strict=True)
    )


def usable(result):
    """What is wrong with a result that was loaded: a raw error when it is shown or resumed."""
    try:
        _ = repr(result), result.theta, result.theta_mcse, result.theta_last
    except Exception as error:
        return f"repr raised {type(error).__name__}: {error}"
    if not isinstance(result, pipla.Result) or result.num_steps > 100:
        return None
    save = pipla.Save(quantity=lambda theta, x: x["w"]) if result.snapshot.has_quantity else None
    try:
        algorithm = result.algorithm or pipla.IPLA(0.1)
        pipla.resume(
            result, honest.model(), num_steps=1, algorithm=algorithm, save=save, progress=False
        )
    except Exception as error:
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        # Ours, or the user's model, if the file holds a theta or x of another structure.
        ours = (str(Path(pipla.__file__).parent), honest.__file__)
        if not trace.tb_frame.f_code.co_filename.startswith(ours):
            return f"resume raised {type(error).__name__}: {str(error)[:200]}"
    return None
