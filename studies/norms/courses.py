"""The typical course of norms along the prompt: smooth and from other prompts than it is removed from, or shuffled.

A mean over few prompts holds a part of what they say at each position. Taken from the prompts on which it is removed,
it takes that content with it: the course of a prompt is therefore estimated on the prompts of the other fold, with few
numbers for each layer; the same course with its positions shuffled is what an effect of position is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

FOLDS = 2
"""Prompts k with equal k mod 2 are a fold."""
DEGREE = 3
"""Of the polynomial in log(j + 1) that a course is after its first position."""


def smooth_course(course: Float[np.ndarray, "T n"]) -> Float[np.ndarray, "T n"]:
    """Return log sizes as polynomials in log(j + 1): least squares after position 0, each octave counting alike.

    >>> smooth_course(np.array([[5.0, 1, 1, 1, 1, 1]])).round(9).tolist()
    [[5.0, 1.0, 1.0, 1.0, 1.0, 1.0]]
    """
    u = np.log(np.arange(1, course.shape[1]) + 1.0)
    powers = np.vander(u / u[-1], DEGREE + 1)
    root = np.exp(-u / 2)  # of the weight 1/(j + 1): positions in an octave are as many as its beginning
    fit = np.linalg.lstsq(powers * root[:, None], course[:, 1:].T * root[:, None], rcond=None)[0]
    return np.concatenate([course[:, :1], (powers @ fit).T], axis=1)


def held_out_courses(logs: Float[np.ndarray, "N T n"]) -> Float[np.ndarray, "folds T n"]:
    """Return for each fold the mean log size over the prompts of the other fold.

    >>> held_out_courses(np.arange(4.0)[:, None, None] * np.ones((1, 1, 2)))[:, 0].tolist()
    [[2.0, 2.0], [1.0, 1.0]]
    """
    fold = np.arange(len(logs)) % FOLDS
    return np.stack([logs[fold != k].mean(0) for k in range(FOLDS)])


def removals(
    rule: str, logs: Float[np.ndarray, "N T n"], seed: int = 0
) -> Iterator[tuple[Int[np.ndarray, "rows"], Float[np.ndarray, "T n"]]]:
    """Yield groups of prompts with the typical size that is removed from them.

    By the rule it is one number a layer (``constant``: all differences between tokens go), the course of the other fold
    (``smooth``), or the same with its positions shuffled, in all layers alike and anew for each prompt (``shuffled``).

    >>> logs = np.zeros((3, 1, 6))
    >>> [rows.tolist() for rows, course in removals("smooth", logs)], len(list(removals("shuffled", logs)))
    ([[0, 2], [1]], 3)
    """
    N, _, n = logs.shape
    courses = held_out_courses(logs)
    if rule == "constant":
        courses = np.broadcast_to(courses.mean(-1, keepdims=True), courses.shape)
    else:
        courses = np.stack([smooth_course(course) for course in courses])
    if rule == "shuffled":
        rng = np.random.default_rng(seed)
        for k in range(N):
            yield np.array([k]), np.exp(courses[k % FOLDS][:, rng.permutation(n)])
        return
    for fold, course in enumerate(courses):
        yield np.arange(fold, N, FOLDS), np.exp(course)
