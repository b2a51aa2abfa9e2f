-- Run by the stand-alone luajit before the program, as its LUA_INIT: starts the
-- recorder with the options that the command has put into the environment.
-- The session ends by itself when the program ends.

local options = os.getenv("SYSPROF_RECORD")
local user_init = os.getenv("SYSPROF_LUA_INIT")

local function refuse(what)
  io.stderr:write("sysprof: ", what, "\n")
  os.exit(125)
end

-- The program, and what it starts, get the environment that they would have
-- had. Lua has no call for that, and a luajit may be built without the FFI: then
-- they see our variables.
local has_ffi, ffi = pcall(require, "ffi")
if has_ffi then
  -- Names of our own, so that the program can declare these functions itself.
  ffi.cdef [[
    int sysprof_setenv(const char *, const char *, int) __asm__("setenv");
    int sysprof_unsetenv(const char *) __asm__("unsetenv");
  ]]
  if user_init then
    ffi.C.sysprof_setenv("LUA_INIT", user_init, 1)
  else
    ffi.C.sysprof_unsetenv("LUA_INIT")
  end
  ffi.C.sysprof_unsetenv("SYSPROF_LUA_INIT")
  ffi.C.sysprof_unsetenv("SYSPROF_RECORD")
end

if options then
  local found, sysprof = pcall(require, "sysprof")
  if not found then
    local why = tostring(sysprof)
    if why:find("module 'sysprof' not found", 1, true) then
      why = "luajit does not find the module \"sysprof\""
    end
    refuse(why .. "; install it with luarocks, or in its source folder run"
      .. " eval \"$(make -s env)\" first")
  end
  -- The path comes last: it may contain anything.
  local head, path = options:match("^(.-)path=(.*)$")
  local start = { path = path }
  for key, value in head:gmatch("(%l+)=([^\n]*)\n") do
    start[key] = tonumber(value) or value
  end
  local started, message = sysprof.start(start)
  if not started then
    refuse("the recording could not be started: " .. tostring(message))
  end
end

if user_init then
  local file = user_init:match("^@(.*)")
  local chunk, message
  if file then
    chunk, message = loadfile(file)
  else
    chunk, message = loadstring(user_init, "=LUA_INIT")
  end
  if not chunk then error(message, 0) end
  return chunk()
end
