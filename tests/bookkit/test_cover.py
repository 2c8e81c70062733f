import base64
import json

import pytest

from bookkit import cover
from bookkit.project import find_root


def test_the_committed_image_is_the_notebooks_figure():
    root = find_root()
    assert (root / cover.IMAGE).read_bytes() == cover.committed_figure(root)


def project(tmp_path, name):
    cell = {
        "cell_type": "code",
        "id": "a",
        "metadata": {"mystnb": {"figure": {"name": name}}},
        "execution_count": 1,
        "source": "",
        "outputs": [
            {"output_type": "display_data", "metadata": {}, "data": {"image/png": base64.b64encode(b"PNG").decode()}}
        ],
    }
    (tmp_path / "notebooks").mkdir()
    (tmp_path / cover.IMAGE.parent).mkdir(parents=True)
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "notebooks" / f"{cover.CHAPTER}.ipynb").write_text(json.dumps(notebook))
    return tmp_path


def test_a_changed_figure_is_copied(tmp_path):
    image = cover.refresh(project(tmp_path, cover.FIGURE))
    assert image.read_bytes() == b"PNG"


def test_a_notebook_without_the_figure_is_refused(tmp_path):
    with pytest.raises(ValueError, match=cover.FIGURE):
        cover.refresh(project(tmp_path, "fig-other"))
