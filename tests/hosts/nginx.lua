-- What runs in nginx: a handler that works for each request, and a client in the
-- same worker that asks for as many as make a profile.

local profiled = require "profiled"

local nginx = {}

local function digest(n)
  local sum = 0
  for i = 1, n do sum = sum + #tostring(i / 3) end
  return sum
end

-- The handler of /digest.
function nginx.answer()
  local sums = {}
  for size in ngx.var.arg_sizes:gmatch "%d+" do
    -- Each in a light thread, which is a coroutine that nginx resumes.
    local thread = ngx.thread.spawn(function(n)
      local sum = digest(n)
      return sum
    end, tonumber(size))
    local _, sum = ngx.thread.wait(thread)
    sums[#sums + 1] = sum
    ngx.sleep(0)
  end
  ngx.say(table.concat(sums, " "))
end

local function ask(folder)
  local socket = ngx.socket.tcp()
  assert(socket:connect("unix:" .. folder .. "/nginx.sock"))
  assert(socket:send "GET /digest?sizes=1000,2000 HTTP/1.0\r\nHost: localhost\r\n\r\n")
  local answer = assert(socket:receive "*a")
  socket:close()
  return answer:match "\r\n\r\n(.*)$"
end

-- Runs in the worker when it begins; has nginx end at last.
function nginx.profile(folder)
  assert(ngx.timer.at(0, function()
    local done, message = pcall(function()
      local expected = ("%d %d\n"):format(digest(1000), digest(2000))
      profiled.start()
      repeat assert(ask(folder) == expected) until profiled.enough()
      profiled.stop()
    end)
    if not done then ngx.log(ngx.ERR, message) end
    os.execute(("kill -QUIT $(cat '%s/nginx.pid')"):format(folder))
  end))
end

return nginx
