# `make book` and `make test` need Python >= 3.11 and a network for the first installation, nothing else.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PAGES := index.md _config.yml _toc.yml $(wildcard book/*.md book/*.bib book/assets/*.* book/assets/explorer/*.* notebooks/*.ipynb) \
	$(wildcard posbias/*.py posbias/*/*.py)

OTHER_PYTHON ?= $(lastword $(wildcard /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13))

.PHONY: book html test check unit notebooks portable bench measurements seeds seeds-measured scratch retrieval wheel clean
.NOTPARALLEL:

book: .venv/book.stamp ## run every chapter, then build the pages in _build/html
	$(BIN)/posbias book

html: _build/html/index.html ## build the pages from the committed notebooks

_build/html/index.html: .venv/book.stamp $(PAGES)
	$(BIN)/posbias book --no-execute

test: ## everything that can fail; a part that fails does not stop the others
	$(MAKE) --keep-going check unit notebooks

check: .venv/test.stamp ## lint and types
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: .venv/test.stamp _build/html/index.html ## code, doctests, pairs, links, and the pages in a browser
	$(BIN)/pytest -q -n auto --dist worksteal --durations=25

notebooks: .venv/test.stamp ## run the notebooks again and compare their outputs
	$(BIN)/pytest -q --nbval notebooks/ -n auto --dist loadfile

portable: .venv/test.stamp ## every chapter as other processors, other numbers of threads and the system's Python would run it
	$(BIN)/posbias portable
	if [ -n "$(OTHER_PYTHON)" ]; then $(MAKE) .venv-other/stamp && .venv-other/bin/posbias portable --world here; fi

bench: .venv/test.stamp
	$(BIN)/python benchmarks/run.py

measurements: .venv/book.stamp ## what the chapters keep of the reference models; hours, goes on where it was; see posbias study --list
	$(BIN)/posbias study corpora $(if $(WIKITEXT),--wikitext $(WIKITEXT))
	$(if $(TRAINED),$(BIN)/posbias study snapshots --trained $(TRAINED))
	$(BIN)/posbias study birth $(if $(WIKITEXT),--wikitext $(WIKITEXT))
	for study in untrained absolute norms hops gap paths rotary families between; do $(BIN)/posbias study $$study || exit; done

seeds: .venv/book.stamp ## reference models from two more seeds, in SEEDED, and what the chapters keep of them; hours, goes on where it was
	for seed in $(SEEDS); do $(BIN)/posbias train-reference all --seed $$seed --resume -o $(SEEDED)/seed-$$seed || exit; done
	$(MAKE) seeds-measured
seeds seeds-measured: SEEDS ?= 1 2
seeds seeds-measured: SEEDED ?= trained

seeds-measured: .venv/book.stamp ## the second half of it, for the models in SEEDED whose training has ended
	$(BIN)/posbias study seeds --trained posbias/data/reference
	for seed in $(SEEDS); do \
		$(BIN)/posbias study seeds --trained $(SEEDED)/seed-$$seed || exit; \
		$(BIN)/posbias study gap --trained $(SEEDED)/seed-$$seed --prompts 24 || exit; \
		$(BIN)/posbias study between --trained $(SEEDED)/seed-$$seed || exit; \
	done

scratch: .venv/book.stamp ## what chapter 33 keeps of trained networks; about six hours of a core, goes on where it was
	$(BIN)/posbias train-icl $(foreach k,3 4 5 6 8,-p figure$(k)) -p spread --iterations 20000 $(KEPT)
	$(BIN)/posbias train-icl $(foreach k,9 10 11 13,-p figure$(k)) --iterations 10000 $(KEPT)
scratch: KEPT := --seeds 3 --precision bfloat16 --resume -o results/icl

retrieval: .venv/book.stamp ## what chapter 41 keeps of networks that look values up, in RETRIEVED, and of copying; about eight hours of a core, goes on where it was
	$(BIN)/posbias train-retrieval --chapter --remedies --resume -o $(RETRIEVED)
	cp $(RETRIEVED)/*.nc results/lookup
	for model in $(notdir $(wildcard posbias/data/reference/*-*[0-9])); do \
		$(BIN)/posbias retrieval --model reference/$$model --task copy --resume -o results/lookup/copies/$$model.nc || exit; \
	done
	$(BIN)/posbias study added-biases
retrieval: RETRIEVED ?= trained/retrieval

# build/ first: what an earlier build left there would be in the wheel too
wheel: .venv/book.stamp ## what pip installs elsewhere, in dist/
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .

clean:
	rm -rf .venv .venv-other _build build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/book.stamp: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("make: expected Python >= 3.11, received " + sys.version.split()[0] + "; name another with PYTHON=")'
	$(PYTHON) -m venv .venv
	$(PIP) -e ".[book,measure]" -e ./bookkit
	touch $@

.venv/test.stamp: .venv/book.stamp
	$(PIP) -e ".[book,measure,originals,test]" -e ./bookkit
	touch $@

.venv-other/stamp: .venv/book.stamp
	$(OTHER_PYTHON) -m venv --without-pip .venv-other
	$(BIN)/python -m pip --python .venv-other/bin/python install --quiet -c constraints.txt -e ".[book,measure]"
	touch $@
