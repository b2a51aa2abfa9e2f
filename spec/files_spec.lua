-- Whatever becomes of the file: a full disk, a pipe, a file that goes away. What
-- was written stays readable, and stop says what was not.

local shell = require "spec.support.shell"
local profile = require "spec.support.profile"

local ENOENT, EAGAIN, EACCES, ENXIO, EFBIG, ENOSPC, EROFS, EPIPE, ENAMETOOLONG =
  2, 11, 13, 6, 27, 28, 30, 32, 36

-- A session into arg[1]; what start and stop return is printed.
local SESSION = [[
local sysprof = require "sysprof"
local work = require "spec.support.work"
local path = arg[1]
local function answer(name, ok, message, errno)
  print(name .. "\t" .. (ok and "true" or errno .. "\t" .. message:gsub(" %%(os error %%d+%%)$", "")))
  return ok
end
-- Many stacks that are different, so that there is much to write.
local function deep(n) if n > 0 then return 1 + deep(n - 1) end work.piece() return 0 end
local function works(samples)
  local wanted = sysprof.report().samples + samples
  for i = 1, 1e6 do
    if sysprof.report().samples >= wanted then return end
    deep(i %% 100)
  end
end
local function fill(file)
  local junk = io.open(file, "w")
  if not junk then return end
  junk:setvbuf "no"
  while junk:write(("x"):rep(512)) do end
  junk:close()
end
local function session(options)
  options.path = path
  return answer("start", sysprof.start(options))
end
local function stop() return answer("stop", sysprof.stop()) end
%s]]

describe("a file", function()
  local folder
  before_each(function() folder = shell.folder() end)
  after_each(function() shell.remove(folder) end)

  -- Runs `body` as a session into `path`, with `around` being the command line
  -- in which LUAJIT is the program; returns what it printed, by name.
  local function session(path, body, around)
    shell.write(folder .. "/session.lua", SESSION:format(body))
    local line = (around or "LUAJIT"):gsub("LUAJIT", "luajit session.lua " .. path)
    local code, out, err = shell.run(folder, line)
    assert.equal("", err)
    assert.equal(0, code)
    local said = {}
    for name, value in out:gmatch "(%a+)\t([^\n]*)\n" do said[name] = value end
    return said
  end

  local function refused(path, errno, reason)
    return ("%d\t%s: %s"):format(errno, path, reason)
  end

  -- The profile at `path` was cut, and has at least so many samples.
  local function cut(path, samples)
    local code, out = shell.run(folder, "sysprof info " .. path)
    assert.equal(0, code)
    assert.matches("cut off: its end is missing", out)
    local n = out:match "\nsamples +([%d,]+)"
    assert.is_true(tonumber((n:gsub(",", ""))) >= samples, out)
  end

  local C = "session { mode = 'C', interval = 0.5 }\n"

  describe("on a disk that is full", function()
    local can_mount = shell.run(".", "unshare -rm mount -t tmpfs none /mnt") == 0

    -- `body` into a file of a disk made with these options; the file is `kept`.
    local function on_disk(options, body)
      if not can_mount then
        pending "no disk can be mounted here: neither root nor user namespaces"
        return
      end
      local line = ("mkdir disk && mount -t tmpfs -o %s none disk && LUAJIT; code=$?; "
        .. "cp disk/profile kept 2>/dev/null; exit $code"):format(options)
      return session("disk/profile", body, "unshare -rm sh -c " .. shell.quote(line))
    end

    it("at the start: there is no place for another file", function()
      local said = on_disk("nr_inodes=1", C)
      if said then assert.equal(refused("disk/profile", ENOSPC, "No space left on device"), said.start) end
    end)

    it("at the start: there is no place in it", function()
      local said = on_disk("size=64k", "fill 'disk/junk' " .. C .. "works(20) stop()")
      if not said then return end
      assert.equal("true", said.start)
      assert.equal(refused("disk/profile", ENOSPC, "No space left on device"), said.stop)
      assert.equal("", shell.read(folder .. "/kept"))
    end)

    it("in the middle", function()
      local said = on_disk("size=64k",
        C .. "works(400) fill 'disk/junk' works(1000) stop()")
      if not said then return end
      assert.equal("true", said.start)
      assert.equal(refused("disk/profile", ENOSPC, "No space left on device"), said.stop)
      cut("kept", 50)
    end)

    it("at stop: only the end has no place", function()
      -- Files take whole pages, and what a LuaJIT calls itself is in the
      -- stream's beginning: with a name that is long enough the page ends in
      -- the middle of the end record.
      local D = "session { mode = 'D', interval = 3600000 } "
      local said = on_disk("size=4k", [[
        jit.version = ""
        path = "measured" ]] .. D .. [[ sysprof.stop()
        local text = io.open("measured", "rb"):read "*a"
        path = arg[1]
        jit.version = ("v"):rep(4096 - #text + 10)]] .. "\n" .. D .. "stop()")
      if not said then return end
      assert.equal("true", said.start)
      assert.equal(refused("disk/profile", ENOSPC, "No space left on device"), said.stop)
      assert.equal(4096, #shell.read(folder .. "/kept"))
      cut("kept", 0)
    end)

    it("that may not be written", function()
      local said = on_disk("ro", C)
      if said then assert.equal(refused("disk/profile", EROFS, "Read-only file system"), said.start) end
    end)
  end)

  it("that may not be written is refused", function()
    shell.write(folder .. "/profile", "mine")
    os.execute("chmod 755 " .. folder .. " && chmod 444 " .. folder .. "/profile")
    local said = session("profile", [[
      local posix = require "spec.support.posix"
      -- To the superuser everything is allowed.
      if require "ffi".C.geteuid() == 0 then require "ffi".C.seteuid(65534) end]] .. "\n" .. C)
    assert.equal(refused("profile", EACCES, "Permission denied"), said.start)
    assert.equal("mine", shell.read(folder .. "/profile"))
  end)

  it("that is made read-only later is written to the end", function()
    local said = session("profile", C .. "os.execute 'chmod 444 profile' works(50) stop()")
    assert.equal("true", said.stop)
    assert.is_true(profile.info(folder .. "/profile").complete)
  end)

  it("that is moved is written to the end, under its new name", function()
    local said = session("profile", C .. "works(50) os.execute 'mv profile moved' works(50) stop()")
    assert.equal("true", said.stop)
    assert.is_true(profile.info(folder .. "/moved").complete)
  end)

  for what, line in pairs {
    removed = "rm profile",
    ["replaced by a folder"] = "rm profile; mkdir profile",
    ["replaced by a pipe that nobody reads"] = "rm profile; mkfifo profile",
    ["replaced by /dev/full"] = "rm profile; ln -s /dev/full profile",
    ["replaced by another file"] = "rm profile; echo other >profile",
  } do
    it("that is " .. what .. " is gone, and stop says so", function()
      local said = session("profile", C .. ("works(50) os.execute '%s' works(50) stop()"):format(line))
      assert.equal("true", said.start)
      assert.equal(refused("profile", ENOENT, "No such file or directory"), said.stop)
      if what == "replaced by another file" then
        assert.equal("other\n", shell.read(folder .. "/profile"))
      end
    end)
  end

  it("that is /dev/full by another name is said at stop", function()
    local said = session("profile", C .. "works(50) stop()", "ln -s /dev/full profile; LUAJIT")
    assert.equal(refused("profile", ENOSPC, "No space left on device"), said.stop)
  end)

  describe("that is a pipe", function()
    it("is refused while nobody reads", function()
      local said = session("profile", C, "mkfifo profile; LUAJIT")
      assert.equal(refused("profile", ENXIO, "No such device or address"), said.start)
    end)

    it("holds a profile for whoever reads", function()
      local said = session("profile", C .. "works(500) stop()",
        -- Whoever has it open for both waits for nobody.
        "mkfifo profile; exec 3<>profile; cat profile >got 3>&- & LUAJIT; exec 3>&-; wait")
      assert.equal("true", said.stop)
      assert.is_true(profile.info(folder .. "/got").complete)
    end)

    it("does not keep stop waiting for a reader that reads nothing", function()
      -- More than a pipe holds.
      local said = session("profile", [[session { mode = 'C', interval = 0.1 }
        local chunks = {}
        for i = 1, 600 do chunks[i] = loadstring("return (...)()", "=" .. i .. ("n"):rep(200)) end
        for i = 1, 600 do
          local wanted = sysprof.report().samples + 1
          while sysprof.report().samples < wanted do chunks[i](work.piece) end
        end
        stop()]], "mkfifo profile; exec 3<>profile; LUAJIT")
      assert.equal("true", said.start)
      assert.equal(refused("profile", EAGAIN, "Resource temporarily unavailable"), said.stop)
    end)

    it("says so when its reader leaves, and raises no signal", function()
      local said = session("profile", [[
        repeat
          local ok, _, errno = sysprof.start { mode = "C", interval = 0.5, path = path }
        until ok or errno ~= 6
        repeat works(10) until io.open "gone"
        works(10) stop()]], "mkfifo profile; { head -c 10 profile >got; touch gone; } & LUAJIT")
      assert.equal(refused("profile", EPIPE, "Broken pipe"), said.stop)
    end)
  end)

  it("can't have a name of 4,096 bytes", function()
    local name = ("n"):rep(4096)
    local said = session("x", "path = ('n'):rep(4096) " .. C)
    assert.equal(refused(name, ENAMETOOLONG, "File name too long"), said.start)
  end)

  it("that may not grow (RLIMIT_FSIZE) is kept as far as it got, at any byte", function()
    local D = "session { mode = 'D', interval = 3600000 } "
    local said = session("profile", "local posix = require 'spec.support.posix'\n" .. D .. [[ sysprof.stop()
      local size = #io.open(path, "rb"):read "*a"
      for less = 1, 40, 3 do
        local before = posix.limit(posix.FSIZE, size - less)
        assert(sysprof.start { mode = 'D', interval = 3600000, path = path })
        local ok, message, errno = sysprof.stop()
        posix.limit(posix.FSIZE, before)
        assert(not ok and errno == 27 and message:find("File too large", 1, true), message)
        assert(#io.open(path, "rb"):read "*a" == size - less)
      end
      answer("all", true)]])
    assert.equal("true", said.all)
    cut("profile", 0)
    said = session("profile", C .. [[
      require "spec.support.posix".limit(1, 8192)
      works(3000) stop()]])
    assert.equal(refused("profile", EFBIG, "File too large"), said.stop)
    assert.equal(8192, #shell.read(folder .. "/profile"))
    cut("profile", 50)
  end)
end)
