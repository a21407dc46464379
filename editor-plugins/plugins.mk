# The editor plugins: build, lint, and tests in the real editors. Included by the Makefile at the root.

EDITORS ?= build/editors
VSCODE_PLUGIN := editor-plugins/vscode
VSIX = $(VSCODE_PLUGIN)/spec-complete-$(shell sed -n 's/^  "version": "\(.*\)",/\1/p' $(VSCODE_PLUGIN)/package.json).vsix

# Real editors on a busy machine: a test that fails is run once more, and the report says so (R).
.PHONY: vsix editors-neovim editors-vscode lint-neovim lint-vscode test-neovim test-vscode vscode-settings

vsix: $(VSCODE_PLUGIN)/node_modules ## an installable extension for VS Code
	cp LICENSE $(VSCODE_PLUGIN)/LICENSE
	cd $(VSCODE_PLUGIN) && npm run --silent package
	@echo "install it with: code --install-extension $(VSIX)"

$(VSCODE_PLUGIN)/node_modules: $(VSCODE_PLUGIN)/package-lock.json
	cd $(VSCODE_PLUGIN) && npm ci --silent --no-audit --no-fund
	touch $@

vscode-settings: $(INSTALLED) ## the extension's settings page, from the server's schema
	$(BIN)/spec-complete settings --schema | node $(VSCODE_PLUGIN)/scripts/settings.mjs

editors-neovim:
	tests/e2e/install-neovim.sh $(EDITORS)/neovim

editors-vscode:
	tests/e2e/install-code-server.sh $(EDITORS)/vscode

lint-neovim:
	@command -v luacheck >/dev/null || { apt-get update -qq && apt-get install -y -qq lua-check >/dev/null; }
	cd editor-plugins/neovim && luacheck --quiet .

lint-vscode: $(VSCODE_PLUGIN)/node_modules
	cd $(VSCODE_PLUGIN) && npm run --silent check

test-neovim: $(INSTALLED) lint-neovim editors-neovim models ## the plugin in Neovim 0.12 and 0.11, with the real model
	SPEC_COMPLETE_REQUIRE_EDITORS=1 $(BIN)/python -m pytest -m neovim --reruns 1 tests/e2e/neovim

test-vscode: $(INSTALLED) lint-vscode editors-vscode vsix models ## the extension in a real VS Code, with the real model
	$(BIN)/python -m pip install --quiet --requirement tests/e2e/vscode/requirements.txt
	SPEC_COMPLETE_REQUIRE_EDITORS=1 $(BIN)/python -m pytest -m vscode --reruns 1 tests/e2e/vscode
