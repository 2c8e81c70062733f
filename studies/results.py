"""What studies keep: one netCDF file a question, in which measurements of one kind are stacked.

``results/QUESTION.nc`` has a group for each kind of entry. In a group every variable has the dimension ``entry`` in
front, whose labels are the entries' names (MODEL.KIND); where models differ in their layers or heads, what is shorter
is padded, and ``size_layer`` and the like say how much of it counts. What entries have in common of attributes is the
group's, the rest is in ``attributes``, as JSON. Large arrays of floats of 11 significant bits are kept as the bits of
float16, scaled by a power of two. ``python -m studies.results`` writes the book's files again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import h5netcdf
import numpy as np
import xarray as xr
from jaxtyping import Float, UInt16

from posbias import errors
from posbias.files import write_whole
from posbias.netcdf import check_signature

PADDED = ("layer", "other_layer", "head", "depth", "hop", "channel")
"""Dimensions in which the entries of a group may differ."""
LARGE = 256
"""Arrays of more floats are kept in 16 bits each if that changes none of them."""
OTHER_TEXTS = r"(?!\w+(-ntk)?-\d+\.builtin$).*"
LEFT_OUT: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "models": {
        ".*": ("influence_signed", "influence_signed_prompts"),
        OTHER_TEXTS: ("attention_received", "lambda_token_prompts"),
        r".*\.report": ("contributions_own",),
        r"[^.]+\.(random|wikitext-2|builtin-1024)": ("lambda_frobenius_prompts",),
    },
    "mixing": {".*": ("influence_signed", "attention_received")},
    "ladder": {
        r".*\.rungs-.*": ("rung_pairings",),
    },
    "design": {".*": ("attention_received",)},
    "real": {
        r".*\.sinks-builtin": ("attention",),
        r".*\.sinks-.*": ("first_attention",),
        r".*\.wiki-2048": ("contributions_own",),
        r".*\.(wiki|builtin)-.*": ("attention_received", "contributions_received"),
        r".*\.wiki-.*": (
            "influence_signed",
            "influence_signed_prompts",
            "lambda_frobenius_prompts",
            "lambda_token_prompts",
            "ladder_prompts",
            "branch_gain",
            "branch_scale",
            "output_scale",
        ),
    },
    "remedies": {r".*\.heads": ("chosen_on",)},
    "lookup": {r".+\.copies": ("prompt_tokens", "answer_tokens", "influence_places"), r"[^.]+": ("log_probability",)},
}
"""Variables that no page, table or report reads, by question and entry."""
FOLDER = Path(__file__).resolve().parents[1] / "results"


class Results(Mapping[str, xr.Dataset]):
    """The entries of a question by name, in order; a group is read when one of its entries is first asked for."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._entries: dict[str, xr.Dataset] = {}
        self._groups: dict[str, str] = {}
        if not self.path.is_file():
            raise errors.invalid(str(self.path), "a file of results, as python -m studies.STUDY makes it", "none")
        check_signature(self.path)
        with h5netcdf.File(self.path, "r") as file:
            names = {name: group.variables["entry"][:] for name, group in file.groups.items()}
        pairs = ((entry.decode(), group) for group, entries in names.items() for entry in entries)
        self._groups = dict(sorted(pairs))

    def __getitem__(self, name: str) -> xr.Dataset:
        if name not in self._entries:
            self._entries |= unstacked(xr.load_dataset(self.path, group=self._groups[name], engine="h5netcdf"))
        return self._entries[name].copy()  # what a reader adds to an entry is theirs; the numbers are shared

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, name: object) -> bool:
        return name in self._groups


def load(question: str, folder: Path | str | None = None) -> Results:
    """Return what is kept of a question; a file that was read and has not changed since is not read again."""
    path = Path(folder or FOLDER) / f"{question}.nc"
    if not path.is_file():
        return Results(path)
    written = path.stat()
    return _read(path, written.st_mtime_ns, written.st_size)


@cache
def _read(path: Path, changed: int, size: int) -> Results:
    """Return the results of a file as it was written at a time."""
    return Results(path)


def of_kind(kept: Mapping[str, xr.Dataset], kind: str, models: Sequence[str]) -> dict[str, xr.Dataset]:
    """Return the entries MODEL.KIND by model, in the order of ``models``; models that have none are left out."""
    return {model: kept[f"{model}.{kind}"] for model in models if f"{model}.{kind}" in kept}


SMALL = 4096
"""Bytes of an array up to which packing costs more, in what HDF5 keeps of its parts, than it saves."""
STEP = re.compile(r"-\d{6}$")
"""End of the name of a state that training kept: those of all steps are one kind."""
SEED = re.compile(r"(?P<model>.+)\.seed-(?P<seed>\d+)\.(?P<part>[^.]+)$")
"""Name of an entry of a model that was trained from another seed."""


def seeds_of(kept: Mapping[str, xr.Dataset], kind: str, models: Sequence[str]) -> dict[str, dict[int, xr.Dataset]]:
    """Return the entries MODEL.seed-SEED.KIND by model and seed."""
    found: dict[str, dict[int, xr.Dataset]] = {}
    for model in models:
        names = [match for match in map(SEED.match, kept) if match and (match["model"], match["part"]) == (model, kind)]
        seeds = {int(match["seed"]): kept[match[0]] for match in sorted(names, key=lambda match: int(match["seed"]))}
        if seeds:
            found[model] = seeds
    return found


def save(path: Path, entries: Mapping[str, xr.Dataset]) -> None:
    """Write entries beside those that the file has, in the place of those of the same names, whole or not at all."""
    kept = dict(Results(path)) if path.is_file() else {}
    groups: dict[tuple[Any, ...], dict[str, xr.Dataset]] = {}
    for name, whole in sorted((kept | dict(entries)).items()):
        data = whole.drop_vars(_left_out(path.stem, name), errors="ignore")
        kind = STEP.sub("", name.rpartition(".")[2]) if "." in name else "network"
        groups.setdefault((kind, *_shape(data)), {})[name] = data
    tree: dict[str, xr.Dataset] = {}
    for (kind, *_), members in groups.items():
        same = [other for other in tree if other.partition("+")[0] == kind]
        tree[f"{kind}+{len(same)}" if same else kind] = stacked(members)
    packed = {"zlib": True, "complevel": 9, "shuffle": True}
    encoding = {}
    for group, data in tree.items():
        large = [str(k) for k, x in data.data_vars.items() if x.nbytes > SMALL and x.dtype.kind in "fiu"]
        encoding[f"/{group}"] = dict.fromkeys(large, packed)
    content = xr.DataTree.from_dict(tree).to_netcdf(None, engine="h5netcdf", encoding=encoding)
    write_whole(path, bytes(content))


def _left_out(question: str, entry: str) -> list[str]:
    """Return the variables of an entry that are not kept."""
    rules = LEFT_OUT.get(question, {}).items()
    return [name for pattern, names in rules if re.fullmatch(pattern, entry) for name in names]


def half_bits(x: Float[np.ndarray, "..."]) -> tuple[UInt16[np.ndarray, "..."], int] | None:
    """Return floats as bits of float16 after a factor 2**k, and k; None if they would change.

    Only those that are less than 2**-28 of the largest may change, by 2**-38 of it.

    >>> bits, k = half_bits(np.float32([3.0, 0.375]))
    >>> np.ldexp(bits.view(np.float16).astype(np.float32), -k).tolist(), half_bits(np.float32([1, 1e-3]))
    ([3.0, 0.375], None)
    """
    most = np.abs(x, where=np.isfinite(x), out=np.zeros_like(x)).max()
    k = 15 - int(np.frexp(most)[1])
    half = np.ldexp(x, k).astype(np.float16)
    same = np.allclose(np.ldexp(half.astype(np.float32), -k), x, rtol=0, atol=most * 2.0**-38, equal_nan=True)
    return (half.view(np.uint16), k) if same else None


def stacked(members: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """Return entries of one shape as one data set; 64-bit floats are kept in 32, some in 16."""
    first, sizes = next(iter(members.values())), [data.sizes for data in members.values()]
    most = {dim: max(size[dim] for size in sizes) for dim in sizes[0]}
    out = xr.Dataset(coords={"entry": list(members)})
    for dim, n in most.items():
        if any(size[dim] != n for size in sizes):
            out[f"size_{dim}"] = ("entry", np.array([size[dim] for size in sizes]))
    for name, x in first.variables.items():
        arrays = [data[name].values for data in members.values()]
        if name in most:  # a coordinate: its longest labels, if the others begin as they do
            labels = max(arrays, key=len)
            if all(np.array_equal(a, labels[: len(a)]) for a in arrays):
                out = out.assign_coords({name: (x.dims, labels, x.attrs)})
                continue
        shape = tuple(most[dim] for dim in x.dims)
        kind = np.result_type(*arrays)
        values = np.full((len(arrays), *shape), np.nan if kind.kind == "f" else "" if kind.kind == "U" else 0, kind)
        for row, a in zip(values, arrays, strict=True):
            row[tuple(slice(n) for n in a.shape)] = a
        attrs = dict(x.attrs)
        if kind == np.float64:
            values, attrs = values.astype(np.float32), attrs | {"stored": "float32 of float64"}
        half = half_bits(values) if values.dtype == np.float32 and values[0].size > LARGE else None
        if half:
            values, attrs["half"] = half
        out[f"labels_{name}" if name in most else name] = (("entry", *x.dims), values, attrs)
    attributes = [{k: _plain(v) for k, v in data.attrs.items()} for data in members.values()]
    common = {k: v for k, v in attributes[0].items() if all(k in a and a[k] == v for a in attributes)}
    own = [json.dumps({k: v for k, v in a.items() if k not in common}) for a in attributes]
    out["attributes"] = ("entry", np.array(own))
    return out.assign_attrs(common)


def unstacked(group: xr.Dataset) -> dict[str, xr.Dataset]:
    """Return the entries of a stacked group by name, as they were given."""
    found = {}
    own = {name: x for name, x in group.variables.items() if name not in ("entry", "attributes")}
    for row, entry in enumerate(group["entry"].values):
        sizes = {dim: int(group[f"size_{dim}"][row]) for dim in group.sizes if f"size_{dim}" in group}
        data: dict[str, Any] = {}
        coords: dict[str, Any] = {}
        for name, x in own.items():
            if str(name).startswith("size_"):
                continue
            values = x.values[row] if "entry" in x.dims else x.values
            dims = tuple(dim for dim in x.dims if dim != "entry")
            values = values[tuple(slice(sizes.get(str(dim))) for dim in dims)]
            attrs = dict(x.attrs)
            if "half" in attrs:
                values = np.ldexp(values.view(np.float16).astype(np.float32), -attrs.pop("half"))
            if attrs.pop("stored", None):
                values = values.astype(np.float64)
            target = coords if name in group.coords or str(name).startswith("labels_") else data
            target[str(name).removeprefix("labels_")] = (dims, values, attrs)
        attributes = group.attrs | json.loads(str(group["attributes"].values[row]))
        found[str(entry)] = xr.Dataset(data, coords, attributes)
    return found


def _shape(data: xr.Dataset) -> tuple[Any, ...]:
    """Return what entries of a group have in common: variables with their dimensions, and sizes."""
    variables = tuple(sorted((str(name), x.dims, x.dtype.kind) for name, x in data.variables.items()))
    return variables, tuple(sorted((str(dim), n) for dim, n in data.sizes.items() if dim not in PADDED))


def _plain(value: Any) -> Any:
    """Return an attribute as JSON has it."""
    return value.item() if isinstance(value, np.generic) else value.tolist() if isinstance(value, np.ndarray) else value


if __name__ == "__main__":
    for file in sorted(FOLDER.glob("*.nc")):
        before = file.stat().st_size
        save(file, {})
        print(f"{file.name}: {before / 2**20:.1f} to {file.stat().st_size / 2**20:.1f} MiB")
