--- The plugin's log file: one readable latency line per completion, and what went wrong. Neovim's own LSP
--- log is not used, because at its default level it drops what a server says for information.

local config = require('spec-complete.config')

local M = {}

local levels = { debug = 1, info = 2, warn = 3, error = 4 }
-- normal while typing: no line of their own
local unremarkable = { superseded = true, cancelled = true }
local max_bytes = 4 * 1024 * 1024

---@return string
function M.path()
  return vim.fs.joinpath(vim.fn.stdpath('log'), 'spec-complete.log')
end

---@param level 'debug'|'info'|'warn'|'error'
---@param message string
function M.write(level, message)
  if levels[level] < (levels[config.get().log_level] or levels.info) then
    return
  end
  local path = M.path()
  local size = vim.fn.getfsize(path)
  if size < 0 then
    vim.fn.mkdir(vim.fs.dirname(path), 'p')
  elseif size > max_bytes then
    vim.uv.fs_rename(path, path .. '.1')
  end
  -- only its owner may read it, as the server's own log
  local file = vim.uv.fs_open(path, 'a', tonumber('600', 8))
  if not file then
    return
  end
  local line = ('%s %-5s %s\n'):format(os.date('%Y-%m-%d %H:%M:%S'), level, message)
  vim.uv.fs_write(file, line)
  vim.uv.fs_close(file)
end

--- One latency record of the server as a line for people; the same words as the server's own summary.
---@param record table
---@return string
function M.summary(record)
  local line = ('%s %.0f ms'):format(record.route, record.total_ms)
  if record.reason ~= '' then
    line = ('%s (%s)'):format(line, record.reason)
  end
  if record.forwards > 0 then
    line = line
      .. (': first token %.0f ms, %d tokens in %d passes (%.1f a pass), drafts %d/%d accepted'):format(
        record.ttft_ms,
        record.committed,
        record.forwards,
        record.committed / record.forwards,
        record.accepted,
        record.drafted
      )
      .. (', prompt %d reused + %d new'):format(record.reused_tokens, record.new_tokens)
  end
  return line
end

--- Writes what the server measured.
---@param record table one object of the latency log
function M.telemetry(record)
  if record.kind == 'request' and not unremarkable[record.reason] then
    M.write('info', ('%s [%s]'):format(M.summary(record), record.id))
  end
  M.write('debug', vim.json.encode(record))
end

return M
