-- For `luarocks make`: builds this work tree with cargo and installs the Lua
-- module, its native part, the `sysprof` command, and the header of the C API.
rockspec_format = "3.0"
package = "sysprof"
version = "scm-1"
source = {
  -- The work tree itself: there is no published archive yet.
  url = ".",
}
description = {
  summary = "A sampling profiler that loads into an unpatched LuaJIT",
  license = "MIT",
}
dependencies = { "lua == 5.1" }
supported_platforms = { "linux" }
build = {
  type = "command",
  build_command = "make build",
  install = {
    lua = { sysprof = "lua/sysprof.lua" },
    lib = { sysprof_core = "build/lib/sysprof_core.so" },
    bin = { sysprof = "build/bin/sysprof" },
  },
  -- LuaRocks has no place for headers: these go into the rock's own folder.
  copy_directories = { "include", "docs" },
}
