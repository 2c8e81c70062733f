"""Files of the reference models by checksum: in the package, and in a folder that the user names."""

import hashlib
import re

import pytest

from posbias import shipped
from posbias.files import digest

FILES = {
    "one/config.json": b"{}",
    "one/model.safetensors": b"weights of one",
    "two/config.json": b"{ }",
    "two/model.safetensors": b"weights of two",
    "held-out.npz": b"documents",
}


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with the model one and the documents, of a registry that has the model two as well."""
    write(tmp_path / "package", {name: content for name, content in FILES.items() if "two" not in name})
    entries = {name: f"sha256:{hashlib.sha256(content).hexdigest()}" for name, content in FILES.items()}
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "package")
    monkeypatch.setattr(shipped, "CHECKOUT", tmp_path / "checkout")
    monkeypatch.setattr(shipped, "registry", lambda: entries)
    monkeypatch.setenv("POSBIAS_DATA", str(tmp_path / "data"))
    return tmp_path / "package"


def test_the_registry_is_that_of_the_files():
    """A line for each by name; what is not here keeps its line."""
    texts = [shipped.FOLDER / shipped.HELD_OUT, shipped.FOLDER / shipped.LONGER]
    files = [*texts, *shipped.FOLDER.glob("*/*"), *shipped.CHECKOUT.glob("*/*")]
    here = {path.relative_to(path.parents[path not in texts]).as_posix(): f"sha256:{digest(path)}" for path in files}
    lines = [f"{name} {sha}\n" for name, sha in sorted((shipped.registry() | here).items())]
    text = "".join(["# SHA-256 of the files of the reference models, and of the documents\n", *lines])
    assert text == shipped.REGISTRY.read_text(encoding="utf-8"), f"write this to {shipped.REGISTRY}:\n{text}"
    assert len(shipped.registry()) == 7 * len(shipped.reference_names()) + 2


def test_names_in_the_package_and_names_that_can_be_had(package, tmp_path):
    (tmp_path / "checkout" / "two").mkdir(parents=True)  # without weights
    assert shipped.shipped_names() == ["one"] and shipped.reference_names() == ["one", "two"]
    assert shipped.model_folder("reference/one") == str(package / "one")
    for name in ("three", "", "one/", "held-out.npz", "../package/one"):
        with pytest.raises(
            ValueError, match=f"model: expected reference/ and one of one, two, received reference/{name}"
        ):
            shipped.model_folder(f"reference/{name}")


def test_a_model_that_is_nowhere_is_refused_with_where_it_was_sought(package, tmp_path):
    places = f"{package}, {tmp_path / 'checkout'} or {tmp_path / 'data' / 'reference'}"
    sought = re.escape(f"reference/two: expected its files in {places}, received none; reference/one comes with the")
    with pytest.raises(FileNotFoundError, match=sought + " package.*give its folder studies/reference/models/two"):
        shipped.model_folder("reference/two")


@pytest.mark.parametrize("place", ["data/reference", "checkout"])
def test_a_model_elsewhere_is_taken_if_it_is_that_model(package, tmp_path, place):
    data = tmp_path / place
    write(data, {name: content for name, content in FILES.items() if "two" in name})
    (tmp_path / "checkout" / "two").mkdir(parents=True, exist_ok=True)  # perhaps with a record alone
    assert shipped.model_folder("reference/two") == str(data / "two")
    (data / "two" / "model.safetensors").write_bytes(b"a model of my own")
    with pytest.raises(ValueError, match=rf"{data / 'two' / 'model.safetensors'}: checksum: .*of 17 bytes"):
        shipped.model_folder("reference/two")


@pytest.mark.parametrize("content", [None, b"", b"weights of on", b"weights of onE"])
def test_a_damaged_file_of_the_package_is_named(package, content):
    bad = package / "one" / "model.safetensors"
    bad.unlink()
    if content is not None:
        bad.write_bytes(content)
    received = "no file" if content is None else rf"sha256:\w+ of {len(content)} bytes"
    with pytest.raises(
        ValueError, match=rf"{bad}: checksum: expected sha256:\w+, received {received}; install posbias"
    ):
        shipped.model_folder("reference/one")
