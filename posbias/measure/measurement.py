"""A measurement as an object: its influence, its mixing, the rollouts it predicts, a figure, a report and a file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from posbias import errors
from posbias.comparison.pairs import Comparison, compare
from posbias.files import check_output, check_path
from posbias.rollout.labelled import Profile

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

    from posbias.lookup.file import Found
    from posbias.report.stats import Subject


@dataclass(frozen=True, eq=False, repr=False)
class Measurement:
    """Hold what was measured of a model: ``results``, as :func:`~posbias.measure.results.read_results` returns them."""

    results: xr.Dataset

    @property
    def model(self) -> str:
        """Name of the model."""
        return str(self.results.attrs["model"]).removeprefix("reference/")

    @property
    def prompts(self) -> int:
        """Number of prompts."""
        return int(self.results.attrs["prompts"])

    @property
    def length(self) -> int:
        """Number of tokens in each prompt."""
        return int(self.results.attrs["length"])

    @property
    def described(self) -> str:
        """Model and prompts in a few words."""
        return f"{self.model}, {self.prompts} prompts of {self.length} tokens ({self.results.attrs['dataset']})"

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the numbers come from: model, data, settings and versions."""
        return {str(name): x for name, x in self.results.attrs.items() if name not in ("posbias_schema", "summary")}

    @property
    def variants(self) -> tuple[str, ...]:
        """What :meth:`rollout` can predict of this measurement, yardsticks aside."""
        from posbias.predict import available

        return available(self.results)

    @property
    def mixing(self) -> Float[np.ndarray, "T"]:
        """λ of each layer, first layer first: mean over prompts of ‖a‖/(‖x‖+‖a‖), Frobenius norms."""
        if "lambda_frobenius" not in self.results:
            raise errors.invalid("mixing", "a measurement of mixing", "one of influence alone")
        return self.results["lambda_frobenius"].values.astype(np.float64)

    @property
    def influence(self) -> Profile:
        """The measured influence of each input token on the next one: mean gradient norms, normalised to sum 1."""
        p = self.results["influence"].values.astype(np.float64)
        prompts = self.results.get("influence_prompts")
        kept = None if prompts is None else prompts.values.astype(np.float64)
        return Profile(p / p.sum(), f"{self.model}, measured influence", kept)

    @property
    def use(self) -> Profile:
        """What replacing each input token changes of the next one's distribution: mean total variation, sum 1."""
        if "use_prompts" not in self.results:
            raise errors.invalid("use", "a measurement of use (-q use)", "one without")
        kept = self.results["use_prompts"].values.astype(np.float64)
        p = kept.sum(0)
        return Profile(p / p.sum(), f"{self.model}, use by replacement", kept)

    def rollout(self, variant: str = "layer-shares") -> Profile:
        """Return the influence profile that a predictor of :mod:`posbias.predict` makes of this measurement.

        Its name is one of :attr:`variants`: the table of :doc:`notation` says what each assumes. Or it is a yardstick,
        which knows nothing of the model: ``last``, ``even``, or ``power-law``, one number of which is fitted to the
        measured curve.
        """
        from posbias.predict import find, predict

        label = find(variant).label
        return Profile(predict(self.results, variant), f"{self.model}, {label}")

    def compare(self) -> dict[str, Comparison]:
        """Return how far each prediction is from the measured influence, yardsticks last, by variant."""
        from posbias.predict import yardsticks

        return {name: compare(self.rollout(name), self.influence) for name in (*self.variants, *yardsticks())}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw measured influence and what predicts it, in a new figure unless ``ax`` is given, and return the axes."""
        if ax is not None and not hasattr(ax, "plot"):
            raise errors.invalid("ax", "one axes of matplotlib", type(ax).__name__)
        from posbias.plotting import plot_prediction
        from posbias.predict import PREDICTORS

        shown = [PREDICTORS[name] for name in self.variants if "ladder" not in PREDICTORS[name].needs]
        curves = {one.label: self.rollout(one.name).values for one in shown}
        return plot_prediction(self.influence.values, curves, title=self.described, ax=ax)

    def report(self, path: str | PathLike[str], *, lookup: Found | None = None) -> Path:
        """Write a report, one .html file that needs no other file and no network, and return its path.

        It says which tenths of the prompt have the influence, whether the middle is lost, and whether a prediction is
        nearer than equal shares and than the last token. It has the figures, distances with intervals and tests, how to
        read all this, and where the numbers come from. What the measurement lacks, it says. With ``lookup``, what this
        model finds at each place (:meth:`~posbias.measure.model.Model.lookup`), it says where a passage is found best.
        A file that is there is replaced.
        """
        from posbias.report.document import write_report

        tried = None if lookup is None else self._own_lookup(lookup)
        file = check_output(path, ".html", "path")
        return write_report(file, replace(self._subject(), lookup=tried))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the measurement to a .nc file, as ``posbias measure`` does, for :func:`load`; return the path."""
        from posbias.measure.results import write_results

        file = check_path(path, ".nc")
        write_results(file, self.results)
        return file

    def to_pandas(self) -> pd.DataFrame:
        """Return the measured influence and every rollout that can be computed, a position a row, a column each."""
        import pandas as pd

        columns = {"measured": self.influence.values} | {name: self.rollout(name).values for name in self.variants}
        return pd.DataFrame(columns).rename_axis("position")

    def _subject(self) -> Subject:
        """Return what a report is given: the predictions that can be computed, and why others cannot."""
        from posbias.predict import PREDICTORS, advice
        from posbias.report.stats import Subject

        for name in ("lambda_frobenius", "lambda_token"):
            if name in self.results:
                errors.mixing_coefficients(f"{self.model}: {name}", self.results[name].values)
        found, missing = {}, {}
        for name, one in PREDICTORS.items():
            if one.needs and name not in self.variants:
                missing[name] = advice(self.results, name)
                continue
            try:
                found[name] = self.rollout(name)
            except ValueError as error:
                missing[name] = " ".join(str(error).split())
        return Subject(self.model, self.described, self.results, self.influence, found, missing)

    def _own_lookup(self, lookup: Found) -> xr.Dataset:
        """Return what this model finds at each place, or raise ValueError for another model or a changed one."""
        if not hasattr(lookup, "results"):
            raise errors.invalid("lookup", "what Model.lookup or load_lookup returns", repr(lookup)[:60])
        own, other = self.results.attrs, lookup.results.attrs
        if (own["model"], own["revision"]) != (other["model"], other["revision"]):
            wanted = f"a lookup of {own['model']}, {own['revision']}"
            raise errors.invalid("lookup", wanted, f"one of {other['model']}, {other['revision']}")
        return lookup.results

    def __repr__(self) -> str:
        sizes, layers = self.results.sizes, "influence alone"
        attrs = self.results.attrs
        if "lambda_frobenius" in self.results:
            heads = f" × {sizes['head']} heads" if "head" in sizes else ""
            layers = f"{sizes['layer']} layers{heads}, total mixing {self.mixing.sum():.3f}"
        names = {"branches": "head gains"}
        reasons = {str(name)[3:]: why for name, why in attrs.items() if str(name).startswith("no_")}
        reasons.pop("attention", None)  # said of each quantity that was asked for
        lines = [f"{names.get(name, name)}: none, of a model with {why}" for name, why in reasons.items()]
        lines.insert(0, layers)
        if "profile" in attrs:
            lines.append(f"profile: {attrs['profile']}")
        return "\n".join([f"Measurement of {self.described}", *lines, repr(self.influence)])


def load(path: str | PathLike[str]) -> Measurement:
    """Read the .nc file of a measurement that was saved, or written by ``posbias measure``."""
    from posbias import netcdf
    from posbias.lookup.tasks import LAYOUT
    from posbias.measure.results import read_results

    file = check_path(path, ".nc")
    if LAYOUT in netcdf.load(file).attrs:
        raise errors.invalid(str(file), "a measurement", "a lookup, which posbias.load_lookup and --lookup read")
    return Measurement(read_results(file))
