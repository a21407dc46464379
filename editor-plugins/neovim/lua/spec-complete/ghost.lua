--- Draws the rest of an offer after the cursor, with extmarks in a namespace of our own.

local M = {}

local namespace = vim.api.nvim_create_namespace('spec-complete')

M.namespace = namespace

--- Shows `text` at the cursor: its first line in the cursor's line, the others below it.
--- Text that accepting replaces (`tail`) stays visible as part of the overlay.
---@param bufnr integer
---@param row integer
---@param column integer
---@param text string
---@param tail string
function M.show(bufnr, row, column, text, tail)
  M.hide(bufnr)
  local lines = vim.split(text, '\n', { plain = true })
  local below = {}
  for i = 2, #lines do
    below[#below + 1] = { { lines[i], 'SpecCompleteGhost' } }
  end
  vim.api.nvim_buf_set_extmark(bufnr, namespace, row, column, {
    virt_text = { { lines[1], 'SpecCompleteGhost' } },
    virt_lines = #below > 0 and below or nil,
    -- over the closing brackets that accepting replaces, else between the cursor and what follows
    virt_text_pos = tail ~= '' and 'overlay' or 'inline',
    hl_mode = 'combine',
  })
end

---@param bufnr integer
function M.hide(bufnr)
  if vim.api.nvim_buf_is_valid(bufnr) then
    vim.api.nvim_buf_clear_namespace(bufnr, namespace, 0, -1)
  end
end

return M
