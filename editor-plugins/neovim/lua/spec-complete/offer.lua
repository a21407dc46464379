--- An offer is one completion item tied to a place in a buffer. This module holds its arithmetic:
--- what is left of it after typing, and how much of it "one word" or "one line" is.
--- Columns are bytes, rows count from 0; the protocol's units are translated once, in `from_item`.

local M = {}

---@class spec_complete.Offer
---@field row integer row of the cursor
---@field start integer byte column where the item's text begins
---@field text string the whole text of the item, the part already in the buffer included
---@field tail string text after the cursor that accepting replaces (auto-closed brackets)
---@field item table the item as the server sent it
---@field accepted integer bytes of the item's `insertText` that stand before `text`

--- Byte column of a protocol column, clamped to the line.
---@param line string
---@param column integer
---@param encoding string
---@return integer
local function byte_column(line, column, encoding)
  return vim.str_byteindex(line, encoding, column, false)
end

--- Ties a protocol item to the line it was asked on.
---@param item table
---@param position table protocol position of the request
---@param line string the line's text when the request was sent
---@param encoding string
---@return spec_complete.Offer?
function M.from_item(item, position, line, encoding)
  local text = item.insertText
  if type(text) ~= 'string' or text == '' then
    return nil
  end
  local range = item.range or { start = position, ['end'] = position }
  if range.start.line ~= position.line or range['end'].line ~= position.line then
    return nil
  end
  local cursor = byte_column(line, position.character, encoding)
  local stop = math.max(cursor, byte_column(line, range['end'].character, encoding))
  return {
    row = position.line,
    start = math.min(cursor, byte_column(line, range.start.character, encoding)),
    text = text,
    tail = line:sub(cursor + 1, stop),
    item = item,
    accepted = 0,
  }
end

--- What accepting would still insert at the cursor, or nil when the typing disagrees with the offer.
---@param offer spec_complete.Offer
---@param line string
---@param row integer
---@param column integer byte column of the cursor
---@return string?
function M.remaining(offer, line, row, column)
  if row ~= offer.row or column < offer.start then
    return nil
  end
  local typed = line:sub(offer.start + 1, column)
  if offer.text:sub(1, #typed) ~= typed or #typed == #offer.text then
    return nil
  end
  if line:sub(column + 1, column + #offer.tail) ~= offer.tail then
    return nil
  end
  local rest = offer.text:sub(#typed + 1)
  -- when only the brackets are left that stand there already, there is nothing to offer
  return rest ~= offer.tail and rest or nil
end

local patterns = {
  -- leading white space, then one run of word characters (all beyond ASCII are) or one of punctuation
  word = [=[^\_s*\%(\%([[:alnum:]_]\|[^\x00-\x7f]\)\+\|[[:punct:]]\+\)\|^\_s\+]=],
  -- up to the end of the line; a leading line break belongs to the line it opens
  line = [=[^\n*[^\n]*]=],
}

--- The first word, the first line or the whole of a text.
---@param text string
---@param unit 'word'|'line'|'all'
---@return string
function M.piece(text, unit)
  if unit == 'all' then
    return text
  end
  return vim.fn.matchstr(text, patterns[unit])
end

--- The offer that is left once `piece` was inserted at the cursor.
---@param offer spec_complete.Offer
---@param piece string
---@param column integer byte column of the cursor before the insertion
---@return spec_complete.Offer
function M.after(offer, piece, column)
  local breaks = select(2, piece:gsub('\n', ''))
  local typed = column - offer.start
  local rest = vim.deepcopy(offer)
  rest.row = offer.row + breaks
  rest.start = breaks == 0 and column + #piece or #piece:match('[^\n]*$')
  rest.text = offer.text:sub(typed + #piece + 1)
  rest.accepted = offer.accepted + typed + #piece
  return rest
end

--- UTF-16 length of the first `bytes` bytes of the item's text, as the protocol counts acceptance.
---@param offer spec_complete.Offer
---@param bytes integer
---@return integer
function M.accepted_units(offer, bytes)
  return vim.str_utfindex(offer.item.insertText:sub(1, bytes), 'utf-16')
end

return M
