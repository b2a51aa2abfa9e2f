-- Richards: a small operating system's scheduler: an idle task, a worker, two
-- handlers and two devices that send packets to each other's queues.
-- Expected: `schedule` leads: each of its rounds is a few lines that look at one
-- task's state, mostly to find it held; its line that decides whether a task is
-- to be skipped first. Of the tasks, `append`, which walks a queue, and `idle`.

local rounds = tonumber(arg and arg[1]) or 100

local IDLE, WORKER, HANDLER_A, HANDLER_B, DEVICE_A, DEVICE_B = 1, 2, 3, 4, 5, 6
local DEVICE, WORK = 1, 2

-- Puts `packet` at the end of `queue`, a list by `next`.
local function append(packet, queue)
  packet.next = nil
  if not queue then return packet end
  local last = queue
  while last.next do last = last.next end
  last.next = packet
  return queue
end

local Scheduler = {}
Scheduler.__index = Scheduler

function Scheduler:add(id, priority, run, data, queue)
  local task = { id = id, priority = priority, run = run, data = data, queue = queue,
    held = false, waiting = queue ~= nil or id ~= IDLE, next = self.list }
  self.list, self.tasks[id] = task, task
end

-- The current task waits for a packet.
function Scheduler:wait()
  self.current.waiting = true
  return self.current
end

-- The current task is held, the one after it is looked at.
function Scheduler:hold()
  self.holds = self.holds + 1
  self.current.held = true
  return self.current.next
end

-- Lets a task go on; which one runs now is a matter of priority.
function Scheduler:release(id)
  local task = self.tasks[id]
  task.held = false
  if task.priority > self.current.priority then return task end
  return self.current
end

-- Sends `packet` to the task it names, from the current one.
function Scheduler:send(packet)
  local task = self.tasks[packet.to]
  self.sent = self.sent + 1
  packet.to = self.current.id
  local was_empty = not task.queue
  task.queue = append(packet, task.queue)
  if was_empty and task.priority > self.current.priority then return task end
  return self.current
end

function Scheduler:schedule()
  local task = self.list
  while task do
    if task.held or (task.waiting and not task.queue) then
      task = task.next
    else
      self.current = task
      local packet
      if task.waiting then
        packet = task.queue
        task.queue, task.waiting = packet.next, false
      end
      task = task.run(self, task.data, packet)
    end
  end
end

local function idle(scheduler, data)
  data.left = data.left - 1
  if data.left == 0 then return scheduler:hold() end
  local odd = data.seed % 2
  data.seed = (data.seed - odd) / 2
  if odd == 0 then return scheduler:release(DEVICE_A) end
  data.seed = bit.bxor(data.seed, 0xD008)
  return scheduler:release(DEVICE_B)
end

local function worker(scheduler, data, packet)
  if not packet then return scheduler:wait() end
  data.to = data.to == HANDLER_A and HANDLER_B or HANDLER_A
  packet.to, packet.at = data.to, 1
  for i = 1, 4 do
    data.letter = data.letter % 26 + 1
    packet.letters[i] = 64 + data.letter
  end
  return scheduler:send(packet)
end

local function handler(scheduler, data, packet)
  if packet then
    if packet.kind == WORK then data.work = append(packet, data.work)
    else data.devices = append(packet, data.devices) end
  end
  local work = data.work
  if not work then return scheduler:wait() end
  if work.at > 4 then
    data.work = work.next
    return scheduler:send(work)
  end
  local device = data.devices
  if not device then return scheduler:wait() end
  data.devices = device.next
  device.letter = work.letters[work.at]
  work.at = work.at + 1
  return scheduler:send(device)
end

local function device(scheduler, data, packet)
  if packet then
    data.pending = packet
    return scheduler:hold()
  end
  local pending = data.pending
  if not pending then return scheduler:wait() end
  data.pending = nil
  return scheduler:send(pending)
end

-- `n` packets in a queue.
local function packets(n, to, kind)
  local queue
  for _ = 1, n do
    queue = { next = queue, to = to, kind = kind, at = 1, letter = 0, letters = { 0, 0, 0, 0 } }
  end
  return queue
end

local function richards()
  local scheduler = setmetatable({ tasks = {}, sent = 0, holds = 0 }, Scheduler)
  scheduler:add(IDLE, 0, idle, { left = 10000, seed = 1 })
  scheduler:add(WORKER, 1000, worker, { to = HANDLER_A, letter = 0 }, packets(2, WORKER, WORK))
  scheduler:add(HANDLER_A, 2000, handler, {}, packets(3, DEVICE_A, DEVICE))
  scheduler:add(HANDLER_B, 3000, handler, {}, packets(3, DEVICE_B, DEVICE))
  scheduler:add(DEVICE_A, 4000, device, {})
  scheduler:add(DEVICE_B, 5000, device, {})
  scheduler:schedule()
  return scheduler.sent, scheduler.holds
end

local sent, holds
for _ = 1, rounds do sent, holds = richards() end
print(("%d times: %d packets sent, %d holds"):format(rounds, sent, holds))
