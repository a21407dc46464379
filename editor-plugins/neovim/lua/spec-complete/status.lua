--- What the server last said about itself, for the statusline, the health check and one message per fault.

local log = require('spec-complete.log')

local M = {}

---@class spec_complete.Status
---@field kind string what the server is doing: see `marks`
---@field message string for people; what to do where something is wrong

---@type spec_complete.Status
M.last = { kind = 'stopped', message = 'the server is not running' }
---@type string?
M.last_error = nil

local marks = {
  stopped = '○',
  loading = '…',
  ready = '●',
  busy = '◐',
  inactive = '–',
  paused = '–',
  error = '✗',
}

--- Takes a new state over. A fault is told once in a message, not once per request.
---@param kind string
---@param message string?
function M.set(kind, message)
  message = message or ''
  local fault = kind == 'error' and (M.last.kind ~= kind or M.last.message ~= message)
  M.last = { kind = kind, message = message }
  if kind == 'error' then
    M.last_error = message
  end
  if fault then
    log.write('error', message)
    vim.notify('spec-complete: ' .. message, vim.log.levels.ERROR)
  end
  vim.cmd.redrawstatus({ bang = true })
end

--- A short text for the statusline: `%{v:lua.require'spec-complete'.statusline()}`.
---@return string
function M.line()
  if M.last.kind == 'loading' and M.last.message ~= '' then
    return ('spec %s %s'):format(marks.loading, M.last.message)
  end
  return 'spec ' .. (marks[M.last.kind] or '?')
end

return M
