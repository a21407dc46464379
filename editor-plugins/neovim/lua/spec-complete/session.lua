--- The offers of each buffer: what the server answered last, tied to its line. The one owner of that state;
--- both ways of showing it (Neovim's own and ours) and the accept functions read it here.

local Offer = require('spec-complete.offer')

local M = {}

M.client_name = 'spec_complete'

---@class spec_complete.Session
---@field offers spec_complete.Offer[]
---@field index integer the one that is shown where we draw it ourselves
---@field own boolean we draw it: always on 0.11, on 0.12 only the rest of a partly accepted one

---@type table<integer, spec_complete.Session>
local sessions = {}

---@param bufnr integer
---@return vim.lsp.Client?
function M.client(bufnr)
  return vim.lsp.get_clients({ bufnr = bufnr, name = M.client_name })[1]
end

---@param bufnr integer
---@param offers spec_complete.Offer[]
---@param own boolean
function M.set(bufnr, offers, own)
  sessions[bufnr] = #offers > 0 and { offers = offers, index = 1, own = own } or nil
end

---@param bufnr integer
---@return spec_complete.Session?
function M.get(bufnr)
  return sessions[bufnr]
end

---@param bufnr integer
function M.clear(bufnr)
  sessions[bufnr] = nil
end

--- The cursor of the current window, row and byte column from 0, and its line's text.
---@return integer row
---@return integer column
---@return string line
function M.cursor()
  local row, column = unpack(vim.api.nvim_win_get_cursor(0))
  return row - 1, column, vim.api.nvim_get_current_line()
end

--- The offer that agrees with what stands before the cursor of `bufnr`, the current buffer, and its rest.
---@param bufnr integer
---@param text string? the whole text of the wanted one, where there are several
---@return spec_complete.Offer?
---@return string?
function M.current(bufnr, text)
  local session = sessions[bufnr]
  if not session then
    return nil
  end
  local row, column, line = M.cursor()
  local offer = session.offers[session.index]
  for _, candidate in ipairs(text and session.offers or {}) do
    if candidate.item.insertText == text then
      offer = candidate
    end
  end
  local rest = Offer.remaining(offer, line, row, column)
  return rest and offer, rest
end

return M
