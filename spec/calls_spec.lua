-- What the program asks of the system goes as it would without a session: calls
-- that wait are not cut short, children start and end, and have no session.

local shell = require "spec.support.shell"
local profile = require "spec.support.profile"

describe("under a session", function()
  local folder
  before_each(function() folder = shell.folder() end)
  after_each(function() shell.remove(folder) end)

  -- Runs `body` in a session of that clock and interval; it returns what is printed.
  local function run(clock, interval, body)
    shell.write(folder .. "/program.lua", ([[
      local sysprof = require "sysprof"
      local work = require "spec.support.work"
      local posix = require "spec.support.posix"
      local ffi = require "ffi"
      local ok, message = sysprof.start { mode = "C", path = "profile", clock = %q, interval = %s }
      if not ok then return print("no clock", message) end
      local result = (function() %s end)()
      assert(sysprof.stop())
      print(sysprof.report().samples, result)]]):format(clock, interval, body))
    local code, out, err = shell.run(folder, "luajit program.lua")
    assert.equal("", err)
    assert.equal(0, code)
    if out:find("no clock", 1, true) then return nil, out end
    local samples, result = out:match "^(%d+)\t([^\n]*)\n$"
    assert.is_truthy(samples, out)
    return result, tonumber(samples)
  end

  for _, clock in ipairs { "auto", "perf", "thread", "itimer" } do
    it("calls that sleep or wait are not interrupted by the clock " .. clock, function()
      local result, samples = run(clock, 0.1, [[
        ffi.cdef "int nanosleep(const long time[2], long left[2]);"
        ffi.cdef "int poll(void *descriptors, unsigned long count, int timeout);"
        ffi.cdef "int socketpair(int domain, int type, int protocol, int pair[2]);"
        ffi.cdef "int setsockopt(int socket, int level, int option, const void *value, unsigned int size);"
        ffi.cdef "long recv(int socket, void *buffer, size_t size, int flags);"
        local pair, buffer = ffi.new "int[2]", ffi.new "char[16]"
        local LOCAL, STREAM, SOCKET, RECEIVE_TIMEOUT = 1, 1, 1, 20
        assert(ffi.C.socketpair(LOCAL, STREAM, 0, pair) == 0)
        local two_ms = ffi.new("long[2]", 0, 2000)
        assert(ffi.C.setsockopt(pair[0], SOCKET, RECEIVE_TIMEOUT, two_ms, 16) == 0)
        local interrupted = 0
        local one_ms = ffi.new("long[2]", 0, 1000000)
        for _ = 1, 30 do
          work.piece()
          if ffi.C.nanosleep(one_ms, nil) ~= 0 then interrupted = interrupted + 1 end
          work.piece()
          if ffi.C.poll(nil, 0, 1) ~= 0 then interrupted = interrupted + 1 end
          work.piece()
          -- Nothing comes: EAGAIN is the right answer.
          if ffi.C.recv(pair[0], buffer, 16, 0) ~= -1 or ffi.errno() ~= 11 then interrupted = interrupted + 1 end
        end
        return interrupted]])
      if not result then
        pending(samples)
        return
      end
      -- The interval timer counts the time of the thread that writes as well.
      assert.is_true(tonumber(result) <= (clock == "itimer" and 5 or 0), result)
      assert.is_true(samples >= 30, samples)
    end)
  end

  for _, clock in ipairs { "auto", "thread", "wall" } do
    it("os.execute and io.popen do what they do, under the clock " .. clock, function()
      local result, samples = run(clock, 0.1, [[
        -- What os.execute returns differs among the hosts, but not with a session.
        local first
        for i = 1, 10 do
          work.piece()
          local code = os.execute "exit 3"
          first = first or code
          if code ~= first or code == 0 then return "os.execute: " .. tostring(code) end
          local pipe = io.popen("echo " .. i .. "; cat", "r")
          local text = pipe:read "*a"
          pipe:close()
          if text ~= i .. "\n" then return "io.popen: " .. text end
          local sink = io.popen("cat >popened", "w")
          sink:write(("line\n"):rep(20000))
          sink:close()
          local written = io.open "popened"
          local size = written:seek "end"
          written:close()
          if size ~= 100000 then return "io.popen for writing: " .. size end
        end
        return "as ever"]])
      assert.equal("as ever", result)
      assert.is_true(samples >= 10, samples)
      assert.is_true(profile.info(folder .. "/profile").complete)
    end)
  end

  it("a child by fork may run another program, which has nothing of the session", function()
    local result = run("auto", 0.1, [[
      work.until_samples(sysprof, 50)
      local code = posix.fork(function()
        local argv = ffi.new("const char *[4]", "sh", "-c", "ls -l /proc/$$/fd >descriptors; exit 4")
        ffi.C.execvp("sh", argv)
      end)
      work.until_samples(sysprof, sysprof.report().samples + 50)
      return code]])
    assert.equal("4", result)
    local descriptors = shell.read(folder .. "/descriptors")
    assert.is_truthy(descriptors:find "2 %-> ", descriptors)
    assert.is_nil(descriptors:find "profile", descriptors)
    assert.is_nil(descriptors:find "perf_event", descriptors)
    assert.is_true(profile.info(folder .. "/profile").complete)
  end)

  for how, ending in pairs { ["_exit"] = "ffi.C._exit(5)", ["os.exit"] = "os.exit(5)",
    ["os.exit, the state closed"] = "os.exit(5, true)" } do
    it("a child by fork ends by " .. how .. " and leaves the stream alone", function()
      local result, samples = run("auto", 0.1, ([[
        local codes = {}
        for i = 1, 10 do
          work.piece()
          codes[i] = posix.fork(function() work.piece() %s end)
        end
        return table.concat(codes, " ")]]):format(ending))
      assert.equal(("5 "):rep(10), result .. " ")
      local info = profile.info(folder .. "/profile")
      assert.is_true(info.complete)
      assert.equal(samples, info.samples)
    end)
  end
end)
