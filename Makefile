# The two commands of the README. `make demo ARGS="--steps 50"` passes flags on to the demo; `make demo ARGS=--help` lists them.
CARGO_TARGET_DIR ?= $(or $(ANABRANCH_CACHE),$(HOME)/.cache/anabranch)/target
export CARGO_TARGET_DIR

.PHONY: demo test
demo:
	@scripts/install-packages.sh demo
	@# Of the whole workspace, so that the tests find the same dependencies built.
	@scripts/build.sh build --locked --workspace --bin async_grpo --bin anabranch
	@$(CARGO_TARGET_DIR)/debug/async_grpo $(ARGS)

test:
	@scripts/install-packages.sh test
	@scripts/test.sh
