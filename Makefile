# Copyright The Farandole Authors
# SPDX-License-Identifier: Apache-2.0
# What each target does is in tools/steps.py.
PYTHON ?= python3
STEPS := $(PYTHON) tools/steps.py

.PHONY: test test-all demo lint cpp asan tsan python clean
test:
	@$(STEPS)
test-all:
	@FARANDOLE_TEST_FULL=1 $(STEPS)
demo:
	@$(STEPS) system demo
lint:
	@$(STEPS) environment lint
cpp asan tsan:
	@$(STEPS) system environment $@
python:
	@$(STEPS) system environment package python
clean:
	rm -rf build .venv
