--- `:checkhealth spec-complete`: is the server there, does it fit, is the model there, what went wrong last.

local config = require('spec-complete.config')
local log = require('spec-complete.log')
local session = require('spec-complete.session')
local status = require('spec-complete.status')

local M = {}

local health = vim.health

--- Output of the server's command with other arguments, or nil.
---@param arguments string[]
---@return string? output
---@return string? error
local function ask(arguments)
  local command = { config.get().cmd[1], unpack(arguments) }
  local started, process = pcall(vim.system, command, { text = true, timeout = 60000 })
  if not started then
    return nil, tostring(process)
  end
  local done = process:wait()
  if done.code ~= 0 and vim.trim(done.stdout) == '' then
    return nil, vim.trim(done.stderr)
  end
  return vim.trim(done.stdout)
end

local function check_editor()
  health.start('Neovim')
  if vim.fn.has('nvim-0.11') == 0 then
    health.error('Neovim 0.11 or newer is needed')
  elseif config.native() then
    health.ok('ghost text by vim.lsp.inline_completion')
  else
    health.ok('ghost text by this plugin: this Neovim has no vim.lsp.inline_completion')
  end
  for _, name in ipairs(config.unknown()) do
    health.warn(('vim.g.spec_complete has an option that does not exist: %s'):format(name))
  end
end

---@return boolean found
local function check_server()
  health.start('Server')
  local cmd = config.get().cmd
  local path = vim.fn.exepath(cmd[1])
  if path == '' then
    health.error(('"%s" was not found'):format(cmd[1]), {
      'Install it: pip install spec-complete',
      "Or name it: vim.g.spec_complete = { cmd = { '/path/to/spec-complete', 'serve' } }",
    })
    return false
  end
  health.ok('found: ' .. path)
  local installed, problem = ask({ '--version' })
  if not installed then
    health.error('it does not run: ' .. problem)
    return false
  end
  installed = installed:match('%d+%.%d+%S*') or installed
  health.ok('installed version: ' .. installed)
  local client = vim.lsp.get_clients({ name = session.client_name })[1]
  if not client then
    health.info("it is not running: vim.lsp.enable('spec_complete') starts it with the first file")
    return true
  end
  local running = vim.tbl_get(client, 'server_info', 'version')
  if running and running ~= installed then
    health.warn(('the running server is version %s'):format(running), { ':SpecComplete restart' })
  else
    health.ok(('running, process group of client %d'):format(client.id))
  end
  return true
end

--- The findings of `spec-complete doctor`: device, engine, model, and the command that mends what is wrong.
local function check_model()
  health.start('Model and engine')
  local output, problem = ask({ 'doctor', '--json' })
  local parsed, report = pcall(vim.json.decode, output or '', { luanil = { object = true } })
  if not parsed then
    health.error('spec-complete doctor failed: ' .. (problem or output or ''))
    return
  end
  for _, name in ipairs({ 'device', 'engine', 'model' }) do
    local value = report[name]
    if type(value) == 'table' then
      value = value.name or vim.inspect(value, { newline = ' ', indent = '' })
    end
    if value then
      health.info(('%s: %s'):format(name, value))
    end
  end
  for _, fault in ipairs(report.problems or {}) do
    health.error(fault.what or fault.message or vim.inspect(fault), fault.remedy and { fault.remedy })
  end
  if #(report.problems or {}) == 0 then
    health.ok('nothing is wrong with them')
  end
end

local function check_state()
  health.start('State')
  health.info(('%s %s'):format(status.last.kind, status.last.message))
  health.info('log file: ' .. log.path())
  if status.last_error then
    health.warn('last error: ' .. status.last_error)
  else
    health.ok('no error in this session')
  end
end

function M.check()
  check_editor()
  if check_server() then
    check_model()
  end
  check_state()
end

return M
