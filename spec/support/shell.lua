-- Runs commands as a user does, and keeps what they print apart.

local shell = {}

-- Quotes a word for sh.
function shell.quote(word)
  return "'" .. tostring(word):gsub("'", "'\\''") .. "'"
end

-- The whole text of a file.
function shell.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

-- Writes a file and returns its path.
function shell.write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

-- A new empty folder; the caller removes it with shell.remove.
function shell.folder()
  local pipe = assert(io.popen "mktemp -d")
  local path = pipe:read "*l"
  pipe:close()
  return (assert(path, "mktemp -d made no folder"))
end

-- The names in a folder, in order.
function shell.names(folder)
  local pipe = assert(io.popen("ls -A " .. shell.quote(folder)))
  local names = {}
  for name in pipe:lines() do names[#names + 1] = name end
  pipe:close()
  return names
end

function shell.remove(folder)
  os.execute("rm -rf " .. shell.quote(folder))
end

-- Runs a command line in `folder` with nothing on standard input. Returns its
-- exit code (128 and more: a signal), what it printed, and what it said on
-- standard error. What os.execute returns differs among the hosts: not used.
function shell.run(folder, line)
  local files = shell.folder()
  os.execute(("cd %s && ( %s ) </dev/null >%s/out 2>%s/err; echo $? >%s/code"):format(
    shell.quote(folder), line, files, files, files))
  local code = tonumber(shell.read(files .. "/code"))
  local out, err = shell.read(files .. "/out"), shell.read(files .. "/err")
  shell.remove(files)
  return code, out, err
end

-- Runs a piece of Lua in a LuaJIT of its own, of the kind that runs the specs.
function shell.lua(folder, source)
  return shell.run(folder, "luajit -e " .. shell.quote(source))
end

return shell
