-- Open loop: every request is sent at its own time, whatever became of the others.
--
--   wrk -t1 -c CONNECTIONS -d SECONDS -s open.lua URL -- SCHEDULE OUT
--
-- SCHEDULE: a line with time zero on the monotonic clock (seconds), "stream" or "whole", and a model; then a line a request: its
-- time after zero (seconds), its size ("-" for none). A connection that is free takes the next time of the schedule and waits for
-- it; as long as there are free connections, nothing waits for an answer. OUT gets a line an answer: number from 0, when it was
-- sent and answered (seconds after zero), status, who served it.

local ffi = require("ffi")
ffi.cdef [[
  typedef struct { long seconds; long nanoseconds; } bed_time;
  int clock_gettime(int clock, bed_time *now);
]]
local reading = ffi.new("bed_time")
local zero, beginning, out
local times, sizes, sent = {}, {}, {}
local taken, answered = 0, 0
local asked = -1 -- wrk looks at one request before it starts, and does not send it

local function now()
   ffi.C.clock_gettime(1, reading) -- CLOCK_MONOTONIC
   return tonumber(reading.seconds) + 1e-9 * tonumber(reading.nanoseconds) - zero
end

function init(arguments)
   local lines = io.lines(arguments[1])
   local first, word, model = lines():match("(%S+) (%S+) (%S+)")
   zero = tonumber(first)
   beginning = '{"model": "' .. model .. '", "messages": [{"role": "user", "content": "?"}]'
   if word == "stream" then
      beginning = beginning .. ', "stream": true'
   end
   for line in lines do
      local time, size = line:match("(%S+) (%S+)")
      times[#times + 1], sizes[#sizes + 1] = tonumber(time), size
   end
   out = io.open(arguments[2], "w")
   out:setvbuf("line")
end

function delay()
   taken = taken + 1
   if taken > #times then
      return 1000000000
   end
   return math.max(0, math.floor(1000 * (times[taken] - now()) + 0.5))
end

function request()
   asked = asked + 1
   local body = beginning
   if sizes[asked] and sizes[asked] ~= "-" then
      body = body .. ', "size": ' .. sizes[asked]
   end
   local headers = { ["x-request-id"] = tostring(asked - 1), ["content-type"] = "application/json" }
   for name, value in pairs(wrk.headers) do
      headers[name] = value
   end
   sent[asked] = now()
   return wrk.format("POST", "/v1/chat/completions", headers, body .. "}")
end

function response(status, headers, body)
   local at = now()
   local number = headers["x-request-id"]
   local server = headers["x-queuewise-backend"] or "-"
   answered = answered + 1
   if number then
      out:write(number, " ", sent[number + 1], " ", at, " ", status, " ", server, "\n")
   else
      out:write("- - ", at, " ", status, " ", server, "\n")
   end
   if answered >= #times then
      out:close()
      os.exit(0) -- stopping the thread would leave wrk asleep until its time is over
   end
end
