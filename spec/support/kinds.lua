-- Runs what a program of tests/step/programs steps through until all of it that gets
-- hot is compiled. Usage: luajit -jdump=... kinds.lua PROGRAM
for _ = 1, 3 do
  -- Loaded again, it lies elsewhere, and gets hot in another order.
  local body, _, before = assert(loadfile(arg[1]))()
  if before then before() end
  for _ = 1, 4 do body() end
end
