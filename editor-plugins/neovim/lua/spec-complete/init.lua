--- Inline completion by the spec-complete server: the functions behind the commands and the mappings.

local config = require('spec-complete.config')
local ghost = require('spec-complete.ghost')
local log = require('spec-complete.log')
local Offer = require('spec-complete.offer')
local session = require('spec-complete.session')
local status = require('spec-complete.status')

local M = {}

--- The way of showing: Neovim's own inline completion, or ours.
local function display()
  return require(config.native() and 'spec-complete.native' or 'spec-complete.own')
end

M.statusline = status.line

--- Inserts `piece` at the cursor, in place of `tail`, as an undo step of its own.
---@param bufnr integer
---@param piece string
---@param tail string
local function insert(bufnr, piece, tail)
  local row, column = session.cursor()
  local lines = vim.split(piece, '\n', { plain = true })
  vim.cmd('let &g:undolevels = &g:undolevels')
  vim.api.nvim_buf_set_text(bufnr, row, column, row, column + #tail, lines)
  local last = #lines[#lines] + (#lines == 1 and column or 0)
  vim.api.nvim_win_set_cursor(0, { row + #lines, last })
end

---@param bufnr integer
---@param unit 'word'|'line'|'all'
---@param text string? the whole text of the chosen item, where there are several
local function apply(bufnr, unit, text)
  local offer, rest = session.current(bufnr, text)
  display().drop(bufnr)
  if not offer or not rest then
    return
  end
  local client = session.client(bufnr)
  local _, column = session.cursor()
  local piece = Offer.piece(rest, unit)
  if piece == rest then
    insert(bufnr, piece, offer.tail)
    if client and offer.item.command then
      client:exec_cmd(offer.item.command, { bufnr = bufnr })
    end
    return
  end
  insert(bufnr, piece, '')
  local left = Offer.after(offer, piece, column)
  if client then
    client:notify('textDocument/didPartiallyAcceptCompletion', {
      item = offer.item,
      acceptedLength = Offer.accepted_units(left, left.accepted),
    })
  end
  session.set(bufnr, { left }, true)
  M.redraw(bufnr)
end

--- Draws our own ghost text for what the buffer's offer still has to give, or removes it.
---@param bufnr integer
function M.redraw(bufnr)
  local known = session.get(bufnr)
  local offer, rest = session.current(bufnr)
  if known and known.own and offer and rest then
    local row, column = session.cursor()
    ghost.show(bufnr, row, column, rest, offer.tail)
  else
    ghost.hide(bufnr)
  end
end

--- Accepts what is shown: all of it, its next word or its next line. False when nothing is shown, so that a
--- mapping can do something else.
---@param unit? 'word'|'line'|'all'
---@return boolean
function M.accept(unit)
  unit = unit or 'all'
  local bufnr = vim.api.nvim_get_current_buf()
  local known = session.get(bufnr)
  if not known or not session.current(bufnr) then
    return false
  end
  if known.own then
    -- expression mappings may not change text themselves
    vim.schedule(function()
      apply(bufnr, unit)
    end)
    return true
  end
  return vim.lsp.inline_completion.get({
    bufnr = bufnr,
    on_accept = function(item)
      apply(bufnr, unit, item.insert_text)
    end,
  })
end

--- Accepts the next word of what is shown.
---@return boolean
function M.accept_word()
  return M.accept('word')
end

--- Accepts the next line of what is shown.
---@return boolean
function M.accept_line()
  return M.accept('line')
end

--- Removes what is shown.
---@return boolean
function M.dismiss()
  local bufnr = vim.api.nvim_get_current_buf()
  local shown = session.current(bufnr) ~= nil
  display().drop(bufnr)
  return shown
end

--- Shows another of several answers.
---@param count integer
function M.cycle(count)
  display().cycle(vim.api.nvim_get_current_buf(), count)
end

--- Asks now, as the user's own wish.
function M.trigger()
  local bufnr = vim.api.nvim_get_current_buf()
  require('spec-complete.server').mark_explicit(bufnr)
  display().request(bufnr)
end

--- Turns completion on or off, in one buffer or everywhere.
---@param on boolean
---@param bufnr integer?
function M.enable(on, bufnr)
  vim.b[bufnr or 0].spec_complete_off = nil
  if bufnr then
    vim.b[bufnr].spec_complete_off = not on or nil
  else
    vim.g.spec_complete_off = not on or nil
  end
  for _, client in ipairs(vim.lsp.get_clients({ name = session.client_name })) do
    for attached in pairs(client.attached_buffers) do
      display().detach(attached)
      if M.is_enabled(attached) then
        display().attach(attached)
      end
    end
  end
  status.set(M.is_enabled(0) and 'ready' or 'paused')
end

---@param bufnr integer
---@return boolean
function M.is_enabled(bufnr)
  return not vim.g.spec_complete_off and not vim.b[bufnr].spec_complete_off
end

--- Starts the server anew.
function M.restart()
  vim.lsp.enable(session.client_name, false)
  for _, client in ipairs(vim.lsp.get_clients({ name = session.client_name })) do
    client:stop(true)
  end
  vim.defer_fn(function()
    vim.lsp.enable(session.client_name)
  end, 300)
end

--- The handlers, and what happens on attaching, for `lsp/spec_complete.lua`.
M.handlers = {
  ['specComplete/telemetry'] = function(_, record)
    log.telemetry(record)
  end,
  ['specComplete/status'] = function(_, new)
    status.take(new)
  end,
  ['specComplete/moreAvailable'] = function(_, more)
    local bufnr = vim.api.nvim_get_current_buf()
    if more.uri == vim.uri_from_bufnr(bufnr) and vim.api.nvim_get_mode().mode:match('^i') then
      display().request(bufnr)
    end
  end,
}

---@param bufnr integer
function M.attach(bufnr)
  if M.is_enabled(bufnr) then
    display().attach(bufnr)
  end
end

return M
