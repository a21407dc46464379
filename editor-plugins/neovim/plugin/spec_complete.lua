--- The user command, the <Plug> mappings and the highlight group. Nothing else is loaded until used.

if vim.g.loaded_spec_complete then
  return
end
vim.g.loaded_spec_complete = true

vim.api.nvim_set_hl(0, 'SpecCompleteGhost', { link = 'NonText', default = true })

local function plugin()
  return require('spec-complete')
end

local function everywhere_or_here(on)
  return function(arguments)
    plugin().enable(on, arguments == 'buffer' and vim.api.nvim_get_current_buf() or nil)
  end
end

local subcommands = {
  accept = function()
    plugin().accept()
  end,
  ['accept-word'] = function()
    plugin().accept_word()
  end,
  ['accept-line'] = function()
    plugin().accept_line()
  end,
  dismiss = function()
    plugin().dismiss()
  end,
  disable = everywhere_or_here(false),
  enable = everywhere_or_here(true),
  log = function()
    vim.cmd.tabedit(vim.fn.fnameescape(require('spec-complete.log').path()))
  end,
  restart = function()
    plugin().restart()
  end,
  stats = function()
    local command = { require('spec-complete.config').get().cmd[1], 'stats' }
    vim.cmd.new()
    vim.fn.jobstart(command, { term = true })
  end,
  status = function()
    local status = require('spec-complete.status')
    local state = status.of(vim.api.nvim_get_current_buf())
    vim.notify(status.one_line(('spec-complete: %s %s'):format(state.kind, state.message)))
  end,
  toggle = function()
    plugin().enable(not plugin().is_enabled(0))
  end,
  trigger = function()
    plugin().trigger()
  end,
}

vim.api.nvim_create_user_command('SpecComplete', function(command)
  local name, rest = command.args:match('^(%S+)%s*(.-)$')
  local run = subcommands[name or 'status']
  if run then
    run(rest)
  else
    vim.notify(('SpecComplete: no subcommand "%s"'):format(name), vim.log.levels.ERROR)
  end
end, {
  nargs = '*',
  desc = 'Inline completion by spec-complete',
  complete = function(lead, line)
    local names = vim.tbl_keys(subcommands)
    if line:match('^%S+%s+%S+%s') then
      names = { 'buffer' }
    end
    table.sort(names)
    return vim.tbl_filter(function(name)
      return vim.startswith(name, lead)
    end, names)
  end,
})

local mappings = {
  accept = { 'accept', 'Accept the inline completion' },
  ['accept-word'] = { 'accept_word', 'Accept the next word of the inline completion' },
  ['accept-line'] = { 'accept_line', 'Accept the next line of the inline completion' },
  dismiss = { 'dismiss', 'Remove the inline completion' },
  trigger = { 'trigger', 'Ask for an inline completion' },
}
for name, mapping in pairs(mappings) do
  vim.keymap.set('i', ('<Plug>(spec-complete-%s)'):format(name), function()
    plugin()[mapping[1]]()
  end, { desc = mapping[2] })
end
for name, count in pairs({ next = 1, previous = -1 }) do
  vim.keymap.set('i', ('<Plug>(spec-complete-%s)'):format(name), function()
    plugin().cycle(count)
  end, { desc = ('Show the %s inline completion'):format(name) })
end
