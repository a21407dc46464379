--- Client configuration: `vim.lsp.enable('spec_complete')` uses it.

local languages = { -- Neovim's filetypes that have another name in the protocol
  bash = 'shellscript',
  sh = 'shellscript',
  zsh = 'shellscript',
  cs = 'csharp',
  make = 'makefile',
  objc = 'objective-c',
  tex = 'latex',
}

local markers = { '.git', '.hg', '.jj', 'pyproject.toml', 'package.json', 'Cargo.toml', 'go.mod' }

local config = require('spec-complete.config')

return {
  cmd = function(dispatchers)
    return require('spec-complete.server').start(dispatchers)
  end,
  -- every file type: which languages are completed is the server's setting
  root_dir = function(bufnr, on_dir)
    if require('spec-complete.server').available() then
      on_dir(vim.fs.root(bufnr, markers))
    end
  end,
  get_language_id = function(_, filetype)
    return languages[filetype] or filetype
  end,
  capabilities = { textDocument = { inlineCompletion = { dynamicRegistration = false } } },
  handlers = require('spec-complete').handlers,
  on_attach = function(_, bufnr)
    require('spec-complete').attach(bufnr)
  end,
  init_options = {
    -- settings, before the user's own; this plugin asks again when an answer goes on behind its deadline
    clientDebounceMs = require(config.native() and 'spec-complete.native' or 'spec-complete.own').debounce_ms,
    deadlineMs = 300,
    -- what this plugin wants to be told
    telemetry = true,
    moreAvailable = true,
    status = true,
  },
}
