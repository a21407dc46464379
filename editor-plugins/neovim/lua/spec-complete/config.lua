--- The plugin's own options, read from `vim.g.spec_complete`. What the server does is configured with
--- the server's settings, `vim.lsp.config('spec_complete', { settings = { specComplete = … } })`.

local M = {}

---@class spec_complete.Config
M.defaults = {
  --- Command that starts the server; it must speak LSP over stdio.
  cmd = { 'spec-complete', 'serve' },
  --- Delay before asking, in ms, where Neovim has no inline completion of its own (0.11).
  debounce_ms = 60,
  --- Least severe level that the log file gets: 'debug' (with the JSON records), 'info', 'warn', 'error'.
  log_level = 'info',
  --- Restarts after a crash within three minutes, before giving up.
  max_restarts = 5,
}

---@return spec_complete.Config
function M.get()
  return vim.tbl_extend('force', M.defaults, vim.g.spec_complete or {})
end

--- Options that do not exist, for `:checkhealth`.
---@return string[]
function M.unknown()
  return vim.tbl_filter(function(name)
    return M.defaults[name] == nil
  end, vim.tbl_keys(vim.g.spec_complete or {}))
end

--- Whether this Neovim shows inline completion by itself (0.12).
---@return boolean
function M.native()
  return vim.lsp.inline_completion ~= nil
end

return M
