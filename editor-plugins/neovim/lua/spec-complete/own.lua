--- Showing by our own extmarks, for Neovim 0.11, which has no inline completion: asks after a short delay
--- whenever the cursor moves in insert mode, and keeps the ghost text in step with the typing.

local config = require('spec-complete.config')
local ghost = require('spec-complete.ghost')
local server = require('spec-complete.server')
local session = require('spec-complete.session')

local M = {}

M.debounce_ms = config.get().debounce_ms

local method = 'textDocument/inlineCompletion'
local timer = assert(vim.uv.new_timer())

local function redraw(bufnr)
  require('spec-complete').redraw(bufnr)
end

---@param bufnr integer
function M.request(bufnr)
  timer:stop()
  local client = session.client(bufnr)
  if not client or vim.api.nvim_get_current_buf() ~= bufnr then
    return
  end
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  params.context = { triggerKind = 2 }
  client:request(method, params, function() end, bufnr)
end

---@param bufnr integer
local function after_move(bufnr)
  if session.get(bufnr) and not session.current(bufnr) then
    session.clear(bufnr)
  end
  redraw(bufnr)
  timer:start(
    M.debounce_ms,
    0,
    vim.schedule_wrap(function()
      if vim.api.nvim_get_mode().mode:match('^i') then
        M.request(bufnr)
      end
    end)
  )
end

---@param bufnr integer
local function group(bufnr)
  return vim.api.nvim_create_augroup('spec-complete:' .. bufnr, { clear = true })
end

---@param bufnr integer
function M.attach(bufnr)
  server.on_answer = function(buffer, offers)
    session.set(buffer, offers, true)
    if vim.api.nvim_get_mode().mode:match('^i') then
      redraw(buffer)
    end
  end
  local events = { 'InsertEnter', 'CursorMovedI', 'TextChangedI', 'TextChangedP' }
  vim.api.nvim_create_autocmd(events, {
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
      M.drop(bufnr)
    end,
  })
end

---@param bufnr integer
function M.detach(bufnr)
  group(bufnr)
  M.drop(bufnr)
end

---@param bufnr integer
function M.drop(bufnr)
  timer:stop()
  ghost.hide(bufnr)
  session.clear(bufnr)
end

---@param bufnr integer
---@param count integer
function M.cycle(bufnr, count)
  local known = session.get(bufnr)
  if known then
    known.index = (known.index - 1 + count) % #known.offers + 1
    redraw(bufnr)
  end
end

return M
