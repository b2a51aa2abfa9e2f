-- Built-ins by machine code and by C, with good arguments and odd ones.
return function()
  local t = { 1, 2, 3 }
  local x
  for i = 1, 3 do
    x = assert(i); x = type(i); x = rawget(t, i); x = tonumber("12"); x = tonumber(i)
    x = tostring(i); x = tostring("s"); x = tostring(1.5); x = tostring(nil)
    x = math.floor(1.5 + i); x = math.ceil(i - 0.5); x = math.sqrt(i); x = math.abs(-i)
    x = math.sin(i); x = math.cos(i); x = math.exp(i); x = math.log(i); x = math.pow(i, 2)
    x = math.max(i, 2, 1); x = math.min(1, i, 0.5); x = math.fmod(i, 2); x = math.ldexp(i, 2)
    x = math.frexp(i); x = math.modf(i + 0.5); x = math.atan2(i, 2)
    x = string.byte("abc", i); x = string.char(64 + i); x = string.sub("hello", i, -2)
    x = string.rep("ab", i); x = string.reverse("abc"); x = string.lower("ABC"); x = string.upper("abc")
    x = string.len("abc"); x = #"abc"; x = string.find("hello", "l"); x = string.match("k=v", "(%w)=(%w)")
    x = bit.band(i, 3); x = bit.bor(i, 4, 8); x = bit.lshift(i, 2); x = bit.bnot(i); x = bit.tobit(2 ^ 33)
    x = select("#", 1, 2); x = select(2, 1, 2, 3); x = select(-1, 1, 2)
    x = rawequal(t, t); x = rawset(t, 4, i); x = next(t); x = next(t, 1); x = getmetatable("")
    x = setmetatable({}, t); x = unpack(t); x = #t; x = i ^ 0.5; x = i % 2; x = ("x"):rep(3)
    x = assert(assert, 5); x = rawget({ rawget }, 1); x = select(1, select); x = pcall(pcall)
    table.insert(t, 5); table.remove(t); x = table.getn and table.getn(t)
    x = os.clock() < 0; x = os.time { year = 2020, month = 1, day = 1, hour = i } == nil
  end
end
