"""Notebooks that read the authors' files are compared only where those files are."""

from pathlib import Path

import pytest

from posbias import published
from posbias.book.chapters import list_chapters

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items):
    """Skip, saying why, the cells of chapters that need published files that are not there."""
    if published.available():
        return
    reason = f"needs the authors' files, which are not in {published.data_dir()}"
    needing = {c.notebook for c in list_chapters(ROOT) if "published" in c.needs}
    for item in items:
        if item.path in needing:
            item.add_marker(pytest.mark.skip(reason=reason))
