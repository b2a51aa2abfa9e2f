-- The programs that Debian packages with a LuaJIT inside, run as packaged: each
-- loads the module, does work of its kind under the profiler, and goes on. What
-- its profile has to show are the functions of that work, by name, on a stack
-- that goes down to where the thread began.

local shell = require "spec.support.shell"
local profile = require "spec.support.profile"

local UNAVAILABLE = 69

-- Unpacks a host's packages: the folder, or nil and why they can't be had.
local function unpacked(name)
  local code, out, err = shell.run(".", "scripts/host.sh " .. name)
  if code == UNAVAILABLE then return nil, err end
  assert(code == 0, err)
  return out:match "^(.-)\n$"
end

local function absolute(path)
  local _, out = shell.run(".", "realpath " .. shell.quote(path))
  return out:match "^(.-)\n$"
end

local TESTS, LIBRARY, LUA = absolute "tests/hosts", absolute "build/lib", absolute "lua"
local LUA_PATH = ("%s/?.lua;%s/?.lua"):format(TESTS, LUA)

-- Runs a command line with a host's libraries and the module at hand. It has
-- long ended when the bound is reached, unless it hangs.
local function run(root, folder, line, environment)
  return shell.run(folder, ([[
    export LD_LIBRARY_PATH=%s/usr/lib/x86_64-linux-gnu:%s/lib/x86_64-linux-gnu
    export LUA_PATH='%s;;' LUA_CPATH='%s/?.so;;' SYSPROF_PROFILE=%s/profile HOME=%s
    %s timeout 120 %s/%s]]):format(root, root, LUA_PATH, LIBRARY, folder, folder, environment or "", root, line))
end

local function counted(path)
  local counts = {}
  for line in io.lines(path) do
    local name, n = line:match "^(%S+) (%d+)$"
    counts[name] = tonumber(n)
  end
  return counts
end

-- Stacks with their samples, outermost frame first: what `sysprof collapse`
-- prints of a profile.
local function stacks(path)
  local code, out, err = shell.run(".", "sysprof collapse --native " .. shell.quote(path))
  assert(code == 0 and err == "", err)
  local list = {}
  for stack, n in out:gmatch "([^\n]*) (%d+)\n" do
    list[#list + 1] = { frames = ";" .. stack .. ";", samples = tonumber(n) }
  end
  return list
end

-- Samples whose stack has these frames, each a pattern, in this order.
local function samples_of(list, frames)
  local sum = 0
  for _, stack in ipairs(list) do
    local at = 1
    for _, frame in ipairs(frames) do
      at = at and select(2, stack.frames:find(";" .. frame .. "%f[;]", at))
    end
    if at then sum = sum + stack.samples end
  end
  return sum
end

local hosts = {
  luajit = {
    -- Stripped: of the program itself nothing has a name but what it exports.
    root = "_start;__libc_start_main_impl",
    works = {
      { "main chunk %([^;]*luajit%.lua%)", "coroutine%.wrap_aux", "arrange %([^;]*luajit%.lua:%d+%)", "table%.sort" },
      { "table%.sort", "[^;]*luajit%.lua:5" },
    },
    run = function(root, folder)
      return run(root, folder, "usr/bin/luajit " .. TESTS .. "/luajit.lua")
    end,
  },
  nvim = {
    root = "_start;__libc_start_main_impl;__libc_start_call_main;main",
    works = {
      { "main", "normal_enter", "state_enter", "arrange %([^;]*nvim%.lua:%d+%)", "table%.sort" },
      { "main", "normal_enter", "fill %([^;]*nvim%.lua:%d+%)" },
      { "arrange %([^;]*nvim%.lua:%d+%)", "nvim_buf_set_lines" },
    },
    run = function(root, folder)
      return run(root, folder, ("usr/bin/nvim --headless -u NONE -c 'luafile %s/nvim.lua'"):format(TESTS),
        ("VIMRUNTIME=%s/usr/share/nvim/runtime"):format(root))
    end,
  },
  tarantool = {
    -- Each fiber has a stack of its own, on which it may not have come to its
    -- function yet; the event loop has the thread's.
    root = { "coro_init", "_start;__libc_start_main_impl;__libc_start_call_main;main" },
    works = {
      { "fiber_loop", "coroutine%.wrap_aux", "digest %([^;]*tarantool%.lua:%d+%)" },
      { "fiber_loop", "encode %([^;]*tarantool%.lua:%d+%)", "json%.encode" },
      { "main", "tarantool_lua_run_script", "ev_run" },
    },
    never = {
      { "ev_run", "[^;]*%.lua[^;]*" },
    },
    run = function(root, folder)
      return run(root, folder, "usr/bin/tarantool " .. TESTS .. "/tarantool.lua")
    end,
  },
  nginx = {
    root = "_start;__libc_start_main_impl;__libc_start_call_main;main;ngx_master_process_cycle",
    works = {
      { "ngx_process_events_and_timers", "ngx_http_lua_run_thread", "digest %([^;]*nginx%.lua:%d+%)" },
      { "ngx_process_events_and_timers", "ngx_http_lua_run_thread" },
    },
    run = function(root, folder)
      local _, user = shell.run(".", "id -un")
      local values = {
        FOLDER = folder,
        USER = user:match "%S+",
        MODULES = root .. "/usr/lib/nginx/modules",
        LUA_PATH = ("%s;%s/usr/share/lua/5.1/?.lua;;"):format(LUA_PATH, root),
      }
      local template = shell.read "tests/hosts/nginx.conf"
      shell.write(folder .. "/nginx.conf", (template:gsub("@([%u_]+)@", values)))
      local code, out, err = run(root, folder, ("usr/sbin/nginx -p %s -c %s/nginx.conf -e %s/error.log")
        :format(folder, folder, folder))
      return code, out, err .. shell.read(folder .. "/error.log")
    end,
  },
}

for name, host in pairs(hosts) do
  describe(name .. ", as packaged,", function()
    local folder, missing, code, err, report, info, list
    setup(function()
      local root
      root, missing = unpacked(name)
      if not root then return end
      folder = shell.folder()
      code, _, err = host.run(root, folder)
      if code ~= 0 or err ~= "" then return end
      report, info, list = counted(folder .. "/profile.report"), profile.info(folder .. "/profile"), stacks(folder .. "/profile")
    end)
    teardown(function()
      if folder then shell.remove(folder) end
    end)

    local function that(does, body)
      it(does, function()
        if missing then return pending(missing) end
        assert.equal("", err)
        assert.equal(0, code)
        body()
      end)
    end

    that("profiles its work and goes on to its end", function()
      assert.is_true(report.samples >= 500)
    end)

    that("knows what the VM was doing", function()
      -- Some of the work is compiled.
      assert.is_true(report.TRACE > 0)
      assert.is_true(report.TRACE < report.samples)
    end)

    that("leaves a whole stream that adds up", function()
      assert.is_true(info.complete)
      assert.equal(report.samples, info.samples)
      local states = 0
      for state, n in pairs(info.states) do
        assert.equal(report[state], n)
        states = states + n
      end
      assert.equal(report.samples, states)
    end)

    that("has a stack in every sample", function()
      for _, reason in ipairs { "unsettled", "unreadable", "inconsistent", "full", "busy" } do
        assert.equal(0, report[reason], reason)
      end
      assert.equal(report.samples, samples_of(list, {}))
    end)

    that("has stacks that go down to where the thread began", function()
      local roots = type(host.root) == "table" and host.root or { host.root }
      local rooted = 0
      for _, stack in ipairs(list) do
        for _, root in ipairs(roots) do
          if stack.frames:find(";" .. root .. ";", 1, true) == 1 then rooted = rooted + stack.samples end
        end
      end
      assert.equal(report.samples, rooted)
    end)

    that("names the functions of the work", function()
      for _, frames in ipairs(host.works) do
        assert.is_true(samples_of(list, frames) > 0, "no sample of " .. table.concat(frames, ", "))
      end
      for _, frames in ipairs(host.never or {}) do
        assert.equal(0, samples_of(list, frames), table.concat(frames, ", "))
      end
    end)
  end)
end
