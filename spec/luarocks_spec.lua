-- `luarocks make` with our rockspec into a tree of its own, and the module and
-- the command from there.

local shell = require "spec.support.shell"

local UNAVAILABLE = 69

describe("luarocks make", function()
  local folder, tree, code, out, err
  setup(function()
    folder = shell.folder()
    tree = folder .. "/tree"
    -- Neither a user's settings nor their cache matter; their cargo does.
    shell.write(folder .. "/config.lua", "")
    code, out, err = shell.run(".", ("LUAROCKS_CONFIG=%s/config.lua XDG_CACHE_HOME=%s "
      .. "scripts/luarocks.sh make --tree %s rockspec/sysprof-scm-1.rockspec"):format(folder, folder, tree))
  end)
  teardown(function() shell.remove(folder) end)

  it("installs into any tree", function()
    if code == UNAVAILABLE then return pending(err) end
    assert.equal(0, code, out .. err)
    for _, file in ipairs {
      "share/lua/5.1/sysprof.lua", "lib/lua/5.1/sysprof_core.so", "bin/sysprof",
      -- Where a host in C finds what it is compiled with: docs/c-api.md says so.
      "lib/luarocks/rocks-5.1/sysprof/scm-1/include/lmisclib.h",
      "lib/luarocks/rocks-5.1/sysprof/scm-1/docs/c-api.md",
    } do
      assert.equal(0, (shell.run(tree, "test -f " .. file)), file)
    end
  end)

  it("gives a module that can be required from there", function()
    if code == UNAVAILABLE then return pending(err) end
    local exit, said, wrong = shell.run(folder, ([[
      export LUA_PATH='%s/share/lua/5.1/?.lua' LUA_CPATH='%s/lib/lua/5.1/?.so'
      luajit -e 'local sysprof = require "sysprof"
        assert(sysprof.start { mode = "C", path = "profile" })
        assert(sysprof.stop())
        print(package.searchpath("sysprof_core", package.cpath))' ]]):format(tree, tree))
    assert.equal("", wrong)
    assert.equal(0, exit)
    assert.equal(tree .. "/lib/lua/5.1/sysprof_core.so\n", said)
  end)

  it("gives a command that can be run from there", function()
    if code == UNAVAILABLE then return pending(err) end
    local exit, said = shell.run(folder, shell.quote(tree .. "/bin/sysprof") .. " --version")
    assert.equal(0, exit)
    assert.matches("^sysprof ", said)
  end)
end)
