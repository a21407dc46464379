--- Starts the server and stands between it and Neovim's client: what Neovim does not do by itself (cancel
--- older requests, refuse late answers) is done here, on the RPC object, for every version alike.

local config = require('spec-complete.config')
local log = require('spec-complete.log')
local Offer = require('spec-complete.offer')
local session = require('spec-complete.session')
local status = require('spec-complete.status')

local M = {}

local method = 'textDocument/inlineCompletion'
local missing_told = false
local restarts = {} ---@type integer[] times of the last restarts, in s
local explicit = {} ---@type table<integer, true> buffers whose next request the user asked for

--- Called with the buffer and its offers after each answer; the way of showing sets it.
---@type fun(bufnr: integer, offers: spec_complete.Offer[])
M.on_answer = function() end

--- Whether the configured command can be run; tells once what to do if not.
---@return boolean
function M.available()
  local cmd = config.get().cmd
  if vim.fn.executable(cmd[1]) == 1 then
    return true
  end
  if not missing_told then
    missing_told = true
    status.set('error', ('pip install spec-complete (%s was not found)'):format(cmd[1]))
  end
  return false
end

--- Lets the next request of a buffer count as asked for by the user.
---@param bufnr integer
function M.mark_explicit(bufnr)
  explicit[bufnr] = true
end

--- The offers of an answer that fit the buffer as it is now: it may have changed since the request.
---@param bufnr integer
---@param result table?
---@param params table
---@param line string the line's text when the request was sent
---@return spec_complete.Offer[]
local function fitting(bufnr, result, params, line)
  local client = session.client(bufnr)
  if not result or not client or vim.api.nvim_get_current_buf() ~= bufnr then
    return {}
  end
  local row, column, line_now = session.cursor()
  local offers = {}
  for _, item in ipairs(result.items or result) do
    local offer = Offer.from_item(item, params.position, line, client.offset_encoding)
    if offer and Offer.remaining(offer, line_now, row, column) then
      offers[#offers + 1] = offer
    end
  end
  return offers
end

---@param rpc vim.lsp.rpc.PublicClient
---@return vim.lsp.rpc.PublicClient
local function guarded(rpc)
  local latest ---@type integer? id of the newest request, until it is answered
  local guard = setmetatable({}, { __index = rpc })
  guard.asked_to_stop = false

  local function complete(params, callback, on_reply)
    local bufnr = vim.uri_to_bufnr(params.textDocument.uri)
    -- some 0.12 builds ask for every buffer whenever the cursor moves in one
    if bufnr ~= vim.api.nvim_get_current_buf() then
      return false
    end
    if explicit[bufnr] then
      explicit[bufnr] = nil
      params.context.triggerKind = 1
    end
    if latest then
      rpc.notify('$/cancelRequest', { id = latest })
    end
    local row = params.position.line
    local line = vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ''
    local id
    local sent, new_id = rpc.request(method, params, function(err, result)
      if latest ~= id then
        return callback(nil, nil) -- superseded
      end
      latest = nil
      if err then
        log.write('warn', ('request failed: %s'):format(err.message or vim.inspect(err)))
      end
      vim.schedule(function()
        if not vim.api.nvim_buf_is_valid(bufnr) then
          return
        end
        local offers = fitting(bufnr, not err and result or nil, params, line)
        if offers[1] then
          status.inactive[bufnr] = nil
        end
        M.on_answer(bufnr, offers)
        local items = vim.tbl_map(function(offer)
          return offer.item
        end, offers)
        callback(nil, { items = items })
        if offers[1] and vim.api.nvim_get_mode().mode:match('^[iR]') then
          rpc.notify('textDocument/didShowCompletion', { item = offers[1].item })
        end
      end)
    end, on_reply)
    id, latest = new_id, sent and new_id or nil
    return sent, new_id
  end

  function guard.request(name, params, callback, on_reply)
    if name == 'shutdown' then
      guard.asked_to_stop = true
    elseif name == method then
      return complete(params, callback, on_reply)
    end
    return rpc.request(name, params, callback, on_reply)
  end

  function guard.terminate()
    guard.asked_to_stop = true
    rpc.terminate()
  end

  return guard
end

--- Starts the server again after a crash, a little later each time; gives up when that does not help.
local function restart_later()
  local now = os.time()
  restarts = vim.tbl_filter(function(time)
    return now - time < 180
  end, restarts)
  if #restarts >= config.get().max_restarts then
    status.set('error', 'the server keeps stopping; see :SpecComplete log, then :SpecComplete restart')
    return
  end
  restarts[#restarts + 1] = now
  vim.defer_fn(function()
    vim.lsp.enable(session.client_name)
  end, 250 * 2 ^ #restarts)
end

--- The `cmd` of the client's configuration.
---@param dispatchers vim.lsp.rpc.Dispatchers
---@return vim.lsp.rpc.PublicClient
function M.start(dispatchers)
  local guard
  local on_exit = dispatchers.on_exit
  dispatchers.on_exit = function(code, signal)
    -- told as a wanted end: Neovim's warning about any other fills more than a line, and the prompt that
    -- brings stops the user's typing; the statusline and our log say what happened
    on_exit(0, 15)
    vim.schedule(function()
      if guard.asked_to_stop or vim.v.exiting ~= vim.NIL then
        status.set('stopped', 'the server was stopped')
        return
      end
      log.write('warn', ('the server ended with code %d, signal %d'):format(code, signal))
      status.set('stopped', 'the server ended; starting it again')
      restart_later()
    end)
  end
  status.set('loading', 'starting')
  guard = guarded(vim.lsp.rpc.start(config.get().cmd, dispatchers))
  return guard
end

return M
