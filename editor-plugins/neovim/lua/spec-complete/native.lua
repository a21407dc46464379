--- Showing by `vim.lsp.inline_completion` (Neovim 0.12). It draws, waits before asking and cycles; we keep it
--- from showing what no longer fits, and draw the rest of a partly accepted answer until the next one comes.

local ghost = require('spec-complete.ghost')
local server = require('spec-complete.server')
local session = require('spec-complete.session')

local M = {}

--- Neovim's delay before it asks, in ms: told to the server, which waits that much less.
M.debounce_ms = 200

---@param bufnr integer
local function drop_native(bufnr)
  vim.lsp.inline_completion.get({ bufnr = bufnr, on_accept = function() end })
end

---@param bufnr integer
local function after_move(bufnr)
  local known = session.get(bufnr)
  if not known then
    return
  end
  local fits = session.current(bufnr) ~= nil
  if known.own then
    require('spec-complete').redraw(bufnr)
  elseif not fits then
    drop_native(bufnr)
  end
  if not fits then
    session.clear(bufnr)
  end
end

---@param bufnr integer
local function group(bufnr)
  return vim.api.nvim_create_augroup('spec-complete:' .. bufnr, { clear = true })
end

---@param bufnr integer
function M.attach(bufnr)
  server.on_answer = function(buffer, offers)
    ghost.hide(buffer)
    session.set(buffer, offers, false)
  end
  vim.lsp.inline_completion.enable(true, { bufnr = bufnr })
  vim.api.nvim_create_autocmd({ 'CursorMovedI', 'TextChangedI', 'TextChangedP' }, {
    group = group(bufnr),
    buffer = bufnr,
    callback = function()
      after_move(bufnr)
    end,
  })
  vim.api.nvim_create_autocmd('InsertLeave', {
    group = 'spec-complete:' .. bufnr,
    buffer = bufnr,
    callback = function()
      ghost.hide(bufnr)
      session.clear(bufnr)
    end,
  })
end

---@param bufnr integer
function M.detach(bufnr)
  group(bufnr)
  M.drop(bufnr)
  vim.lsp.inline_completion.enable(false, { bufnr = bufnr })
end

---@param bufnr integer
function M.drop(bufnr)
  ghost.hide(bufnr)
  session.clear(bufnr)
  drop_native(bufnr)
end

--- Lets Neovim ask again, as after a movement of the cursor: it has no function for it.
---@param bufnr integer
function M.request(bufnr)
  local asked = pcall(vim.api.nvim_exec_autocmds, 'CursorMovedI', {
    group = 'nvim.lsp.inline_completion:' .. bufnr,
    modeline = false,
  })
  if not asked then
    vim.api.nvim_exec_autocmds('CursorMovedI', { buffer = bufnr, modeline = false })
  end
end

---@param bufnr integer
---@param count integer
function M.cycle(bufnr, count)
  vim.lsp.inline_completion.select({ bufnr = bufnr, count = count })
end

return M
