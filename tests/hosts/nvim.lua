-- A plugin for nvim: sorts a buffer's lines whenever the event loop gives it a
-- turn, until there are samples enough.

local profiled = require "profiled"

local LINES = 400

local function shorter(a, b)
  return #a < #b or (#a == #b and a < b)
end

local function arrange(buffer)
  local lines = vim.api.nvim_buf_get_lines(buffer, 0, -1, true)
  table.sort(lines, shorter)
  vim.api.nvim_buf_set_lines(buffer, 0, -1, true, lines)
end

local buffer = vim.api.nvim_create_buf(false, true)
local function fill()
  local lines = {}
  for i = 1, LINES do lines[i] = ("x"):rep(i * 7 % 61) .. i * 7919 % LINES end
  vim.api.nvim_buf_set_lines(buffer, 0, -1, true, lines)
end

local function turn()
  fill()
  arrange(buffer)
  if not profiled.enough() then return vim.defer_fn(turn, 0) end
  profiled.stop()
  local lines = vim.api.nvim_buf_get_lines(buffer, 0, -1, true)
  for i = 2, LINES do assert(not shorter(lines[i], lines[i - 1])) end
  vim.cmd "qall!"
end

profiled.start()
vim.defer_fn(turn, 0)
