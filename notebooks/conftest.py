"""nbval runs the notebooks again; what they print, record, glue and draw is compared as numbers."""

import os
from types import MethodType

from nbval.plugin import IPyNbCell

from bookkit.agreement import cell_tolerance, outputs_disagreement
from bookkit.runner import REPEATABLE

os.environ.update({name: value for name, value in REPEATABLE.items() if name not in os.environ})


def compare_outputs(self, test, ref, skip_compare=None):
    """Take the place of nbval's own comparison, of texts, with the one that knows numbers and tolerances."""
    found = outputs_disagreement(ref, test, cell_tolerance(self.cell))
    self.comparison_traceback = [f"{self.cell.id}: {found}"] if found else []
    return not found


def pytest_collection_modifyitems(items):
    """Give every cell of a notebook the book's comparison."""
    for item in items:
        if isinstance(item, IPyNbCell):
            item.compare_outputs = MethodType(compare_outputs, item)
