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
--- Why a buffer gets no completions, by its number.
---@type table<integer, string>
M.inactive = {}

local marks = {
  stopped = '○',
  loading = '…',
  ready = '●',
  busy = '◐',
  inactive = '–',
  paused = '–',
  error = '✗',
}

--- A message that fits one line of the screen: a longer one makes Neovim stop the typing with a prompt. The
--- whole of it stands in the log and in the health check.
---@param message string
---@return string
function M.one_line(message)
  message = message:gsub('%s*\n%s*', ' ')
  local room = vim.o.columns - 14 -- beside the ruler and the pending command
  if vim.fn.strdisplaywidth(message) <= room then
    return message
  end
  local pointer = '… :checkhealth spec-complete'
  return vim.fn.strcharpart(message, 0, room - vim.fn.strdisplaywidth(pointer)) .. pointer
end

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
    vim.schedule(function() -- an error message inside an autocommand would look like its failure
      vim.notify(M.one_line('spec-complete: ' .. message), vim.log.levels.ERROR)
    end)
  end
  vim.cmd.redrawstatus({ bang = true })
end

--- Takes over what the server says, about itself or about one document.
---@param new table parameters of `specComplete/status`
function M.take(new)
  if not new.uri then
    return M.set(new.kind, new.message)
  end
  M.inactive[vim.uri_to_bufnr(new.uri)] = new.kind == 'inactive' and new.message or nil
  log.write('info', ('%s: %s'):format(new.kind, new.message or new.reason or ''))
  vim.cmd.redrawstatus({ bang = true })
end

--- The state that concerns a buffer.
---@param bufnr integer
---@return spec_complete.Status
function M.of(bufnr)
  if M.inactive[bufnr] and M.last.kind == 'ready' then
    return { kind = 'inactive', message = M.inactive[bufnr] }
  end
  return M.last
end

--- A short text for the statusline: `%{v:lua.require'spec-complete'.statusline()}`.
---@return string
function M.line()
  local state = M.of(vim.api.nvim_get_current_buf())
  local line = 'spec ' .. (marks[state.kind] or '?')
  if state.kind == 'loading' and state.message ~= '' then
    line = ('%s %s'):format(line, state.message)
  end
  return line
end

return M
