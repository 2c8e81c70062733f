"""Sequences of the retrieval task, a batch at a time: nothing here runs over items or sequences one by one."""

from __future__ import annotations

import copy

import torch
from jaxtyping import Float, Int
from torch import Tensor

from studies.icl.settings import Task


class Stream:
    """The vectors of one seed, and sequences made of them: two streams of one seed and task give the same sequences.

    Source: Wu et al. 2025, section 5 and appendices J and L, after Reddy 2024.
    """

    def __init__(self, task: Task, seed: int, device: torch.device | str = "cpu") -> None:
        self.task, self.device = task, torch.device(device)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.label_vectors = self._normal(task.labels, task.dimension)
        self.common = self._normal(task.dimension)
        self.centres = self._centres(task.classes)
        self.label_of = torch.arange(task.classes, device=self.device) % task.labels

    def apart(self, seed: int) -> Stream:
        """Return a stream of the same vectors that draws on its own: what it gives leaves this one as it is."""
        other = copy.copy(self)
        other.generator = torch.Generator(self.device).manual_seed(seed)
        return other

    def batch(self, size: int) -> tuple[Float[Tensor, "B tokens d"], Int[Tensor, "B"]]:
        """Return ``size`` training sequences, (B, 2n + 1, d), and the labels of their queries, (B,)."""
        classes = self._arranged(self._distinct(size, self.task.groups, self.task.classes))
        return self._questions(self.centres[classes], self.label_of[classes], self.task.targets)

    def novel(self, size: int) -> tuple[Float[Tensor, "B tokens d"], Int[Tensor, "B"]]:
        """Return sequences of classes that were never trained on, free of position bias, and their queries' labels."""
        size_of_group = torch.arange(self.task.groups, device=self.device).expand(size, -1)
        which = self._arranged(size_of_group)
        labels = self._distinct(size, self.task.groups, self.task.labels).gather(1, which)
        centres = _pick(self._centres(size, self.task.groups), which)
        return self._questions(centres, labels, tuple(range(self.task.items)))

    def trials(self, first: str, second: str, size: int) -> tuple[Float[Tensor, "two B tokens d"], Int[Tensor, "B"]]:
        """Return test sequences [a, b] and [b, a] of novel classes, (2, B, 2n + 1, d), and the right labels, (B,).

        Items a and b are one vector, of the query's class. The right label stands at a in the first order and at b in
        the second, a wrong one at the other place; nothing else differs. Each of the n - 2 other items is of another
        novel class, and all labels in a sequence differ, so that no label is likelier for being there more often (the
        text leaves this open).
        """
        task, a, b = self.task, self.task.places[first], self.task.places[second]
        centres = self._centres(size, task.items)
        items, query = self._items(centres), self._items(centres[:, a])
        items[:, b] = items[:, a]
        labels = self._distinct(size, task.items, task.labels).expand(2, -1, -1).clone()
        labels[1, :, [a, b]] = labels[0, :, [b, a]]
        return torch.stack([self._sequence(items, answers, query) for answers in labels]), labels[0, :, a]

    def _questions(self, centres: Tensor, labels: Tensor, targets: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Return sequences whose query has the class of a random one of the items ``targets``, and its label."""
        rows = torch.arange(len(labels), device=self.device)
        at = torch.tensor(targets, device=self.device)[self._integers(len(targets), len(labels))]
        query = self._items(centres[rows, at])
        return self._sequence(self._items(centres), labels, query), labels[rows, at]

    def _sequence(self, items: Tensor, labels: Tensor, query: Tensor) -> Tensor:
        """Return x_1, y_1, …, x_n, y_n, query as tokens."""
        tokens = items.new_empty(len(items), self.task.tokens, self.task.dimension)
        tokens[:, :-1:2], tokens[:, 1::2], tokens[:, -1] = items, self.label_vectors[labels], query
        return tokens

    def _items(self, centres: Tensor) -> Tensor:
        """Return an item for each centre: itself in a fixed vocabulary, else scattered about it."""
        if self.task.vocabulary == "fixed":
            return centres.clone()
        within = self.task.within
        return (centres + within * self._normal(*centres.shape)) / (1 + within**2) ** 0.5

    def _centres(self, *shape: int) -> Tensor:
        """Return new class vectors."""
        centres = self._normal(*shape, self.task.dimension)
        if self.task.vocabulary == "mixture":
            return centres
        return (centres + self.task.anisotropy * self.common) / (1 + self.task.anisotropy**2) ** 0.5

    def _arranged(self, groups: Tensor) -> Tensor:
        """Return each group B times, in random order: (size, groups) to (size, n)."""
        order = self._uniform(len(groups), self.task.items).argsort(1)
        return groups.repeat(1, self.task.burstiness).gather(1, order)

    def _distinct(self, size: int, count: int, below: int) -> Tensor:
        """Return ``count`` different integers of 0..below-1 in each of ``size`` rows, uniform over ordered choices."""
        chosen = torch.empty(size, 0, dtype=torch.long, device=self.device)
        for k in range(count):
            drawn = self._integers(below - k, size)
            for taken in chosen.sort(1).values.unbind(1):  # step over those that are taken, the lowest first
                drawn = drawn + (drawn >= taken)
            chosen = torch.cat([chosen, drawn[:, None]], 1)
        return chosen

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.device) * self.task.deviation

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, device=self.device)

    def _integers(self, below: int, *shape: int) -> Tensor:
        return torch.randint(below, shape, generator=self.generator, device=self.device)


def _pick(centres: Tensor, which: Tensor) -> Tensor:
    """Return for each place of each row the centre that it names: (B, m, d) and (B, n) to (B, n, d)."""
    return centres.gather(1, which[..., None].expand(-1, -1, centres.shape[-1]))
