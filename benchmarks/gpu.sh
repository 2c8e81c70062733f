#!/bin/sh
# What a measurement takes on a GPU, at most six minutes; writes benchmarks/gpu.md, which the page of operations shows.
cd "$(dirname "$0")/.." && exec "${PYTHON:-.venv/bin/python}" benchmarks/gpu.py "$@"
