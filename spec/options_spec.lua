-- The options of start(): every wrong type, name and value is refused with a
-- message that says which option it is, and every right one is taken.

local sysprof = require "sysprof"
local shell = require "spec.support.shell"

local EINVAL = 22

-- start() must refuse these options, and say all of the patterns.
local function refused(options, ...)
  local ok, message, errno = sysprof.start(options)
  if ok then
    sysprof.stop()
    error("start() took what it has to refuse", 2)
  end
  assert.is_nil(ok)
  assert.matches("^profiler misuse: ", message)
  assert.equal(EINVAL, errno)
  for _, pattern in ipairs { ... } do assert.matches(pattern, message) end
  assert.is_false(sysprof.report().running)
end

describe("the options", function()
  local folder
  setup(function() folder = shell.folder() end)
  teardown(function() shell.remove(folder) end)
  after_each(function() sysprof.stop() end)

  describe("as a whole", function()
    for _, value in ipairs { "C", 10, true, print, coroutine.create(print) } do
      it("can't be a " .. type(value), function() refused(value, "a table", "not a " .. type(value)) end)
    end

    it("have names that are strings", function()
      refused({ "C" })
      refused({ [true] = 1 })
      refused({ mode = "D", [{}] = 1 })
    end)
  end)

  describe("of the wrong type", function()
    local types = {
      boolean = true, number = 1, string = "x", table = {},
      ["function"] = print, thread = coroutine.create(print), userdata = io.stdout,
    }
    -- Each with its type, and what a message about it has to name.
    local right = {
      mode = { "string", '"D", "L", "C"' },
      interval = { "number", "a number" },
      path = { "string", "a string" },
      depth = { "number", "a number" },
      format = { "number", "a number, 2 or 3" },
      clock = { "string", '"auto", "perf", "thread", "itimer", "wall"' },
    }
    for option, wanted in pairs(right) do
      for got, value in pairs(types) do
        if got ~= wanted[1] then
          it(("%s can't be a %s"):format(option, got), function()
            refused({ [option] = value }, "'" .. option .. "'", wanted[2], "not a " .. got)
          end)
        end
      end
    end

    it("are not converted, as Lua would", function()
      refused({ interval = "10" }, "'interval'", "a number", "not a string")
      refused({ depth = "10" }, "'depth'", "a number", "not a string")
      refused({ format = "2" }, "'format'", "a number, 2 or 3", "not a string")
      refused({ path = 10, mode = "C" }, "'path'", "a string", "not a number")
    end)
  end)

  describe("of an unknown name", function()
    for given, near in pairs {
      intervall = "interval", intervl = "interval", Interval = "interval",
      mod = "mode", modes = "mode", pth = "path", paths = "path", dept = "depth",
      clok = "clock", clocks = "clock", formt = "format", formats = "format",
    } do
      it(("%s is refused with %s"):format(given, near), function()
        refused({ [given] = 1 }, ("unknown option '%s', did you mean '%s'%%?"):format(given, near))
      end)
    end

    it("far from any other is refused without a guess", function()
      local _, message = sysprof.start { wavelength = 1 }
      assert.matches("unknown option 'wavelength'", message)
      assert.is_nil(message:find("did you mean", 1, true))
    end)

    it("is refused next to good ones", function()
      refused({ mode = "C", path = folder .. "/never", interva = 1 }, "did you mean 'interval'")
      assert.same({}, shell.names(folder))
    end)
  end)

  describe("mode", function()
    for _, mode in ipairs { "D", "L", "C" } do
      it("can be " .. mode, function()
        assert.is_true(sysprof.start { mode = mode, path = folder .. "/" .. mode })
        assert.equal(mode, sysprof.report().mode)
        assert.is_true(sysprof.stop())
        os.remove(folder .. "/" .. mode)
      end)
    end
    for _, mode in ipairs { "", "c", "d", "X", "DD", "C\0" } do
      it(("can't be %q"):format(mode), function() refused({ mode = mode }, "'mode'") end)
    end
  end)

  describe("interval", function()
    for _, interval in ipairs { 0.5, 1, 1.25, 10, 1000 } do
      it("can be " .. interval, function()
        assert.is_true(sysprof.start { interval = interval })
        assert.equal(interval, sysprof.report().interval)
        assert.is_true(sysprof.stop())
      end)
    end
    for name, interval in pairs {
      zero = 0, negative = -1, ["a small negative"] = -0.1, ["not a number"] = 0 / 0,
      infinite = math.huge, ["negative infinite"] = -math.huge,
      ["too short for a clock"] = 1e-9, ["too long for a clock"] = 1e300,
    } do
      it("can't be " .. name, function() refused({ interval = interval }, "'interval'") end)
    end
  end)

  describe("depth", function()
    for _, depth in ipairs { 1, 2, 512, 4096 } do
      it("can be " .. depth, function()
        assert.is_true(sysprof.start { mode = "C", path = folder .. "/depth", depth = depth })
        assert.is_true(sysprof.stop())
        os.remove(folder .. "/depth")
      end)
    end
    for _, depth in ipairs { 0, -1, 4097, 1.5, 0 / 0, math.huge, 2 ^ 53 } do
      it("can't be " .. depth, function() refused({ depth = depth }, "'depth'") end)
    end
  end)

  describe("format", function()
    for _, format in ipairs { 2, 3 } do
      it("can be " .. format, function()
        assert.is_true(sysprof.start { format = format })
        assert.is_true(sysprof.stop())
      end)
    end
    for _, format in ipairs { 0, 1, 2.5, 4, -2, 0 / 0, math.huge } do
      it("can't be " .. format, function() refused({ format = format }, "'format' must be 2 or 3, not ") end)
    end
  end)

  describe("clock", function()
    for _, clock in ipairs { "thread", "itimer", "wall" } do
      it("can be " .. clock, function()
        assert.is_true(sysprof.start { clock = clock })
        assert.equal(clock, sysprof.report().clock)
        assert.is_true(sysprof.stop())
      end)
    end

    it("can be auto, and says which one that was", function()
      assert.is_true(sysprof.start { clock = "auto" })
      assert.matches("^%a+$", sysprof.report().clock)
      assert.not_equal("auto", sysprof.report().clock)
      assert.is_true(sysprof.stop())
    end)

    it("can be perf, where the kernel allows it", function()
      local ok, message, errno = sysprof.start { clock = "perf" }
      if ok then
        assert.equal("perf", sysprof.report().clock)
        assert.is_true(sysprof.stop())
      else
        -- Asked for by name it is not replaced by another.
        assert.matches("perf", message)
        assert.is_number(errno)
        assert.is_false(sysprof.report().running)
      end
    end)

    for _, clock in ipairs { "", "cpu", "Perf", "sundial" } do
      it(("can't be %q"):format(clock), function() refused({ clock = clock }, "'clock'") end)
    end
  end)

  describe("path", function()
    it("can't be empty", function() refused({ mode = "C", path = "" }, "'path'") end)

    it("can't hold a zero byte", function()
      refused({ mode = "C", path = folder .. "/a\0b" }, "'path'")
      assert.same({}, shell.names(folder))
    end)

    it("can hold any other byte", function()
      local path = folder .. "/\1 \255'\"\n"
      assert.is_true(sysprof.start { mode = "C", path = path })
      assert.is_true(sysprof.stop())
      assert.equal("ljp\3", shell.read(path):sub(1, 4))
      os.remove(path)
    end)
  end)
end)
