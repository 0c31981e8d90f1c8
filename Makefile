PYTHON ?= python3
LAB ?= 01
PORT ?= 8888
RUN = @$(PYTHON) common/setup/environment.py

help:  ## list these commands
	@awk -F ':  ## ' 'FNR == 1 && NR > 1 {print "For developers of the course:"} /^[a-z]/ && NF > 1 {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

lab:  ## open JupyterLab on a lab: make lab LAB=02 PORT=8889
	$(RUN) -m common.setup.jupyter '$(LAB)' --port '$(PORT)'

grade:  ## grade your own lab: make grade LAB=02
	$(RUN) -m grading '$(LAB)'

ledger:  ## how good your predictions were, in all labs: make ledger FROM=older/ledger.json merges a copy
	$(RUN) -m common.ledger $(if $(FROM),--merge '$(FROM)')

counters:  ## on a GPU with Nsight Compute: the GPU's counts of your kernels beside ours: make counters LAB=03
	$(RUN) -m common.hardware.ncu_comparison '$(LAB)'

doctor:  ## say what this machine lacks, and the command that fixes it
	$(RUN) -m common.setup.doctor

.PHONY: help lab grade ledger counters doctor

# The commands for developers of the course. Students do not get this file.
-include developer.mk
