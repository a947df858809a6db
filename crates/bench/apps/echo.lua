-- For wrk: POSTs BENCH_BODY bytes, or GETs where that is 0, of BENCH_PATHS paths in turn, and prints what it saw as one line of JSON,
-- times in microseconds.
local body = tonumber(os.getenv("BENCH_BODY"))
if body > 0 then
  wrk.method = "POST"
  wrk.body = string.rep("x", body)
  wrk.headers["Content-Type"] = "application/octet-stream"
end
local paths = tonumber(os.getenv("BENCH_PATHS"))
if paths > 0 then
  local encoding = os.getenv("BENCH_ENCODING")
  if encoding ~= "" then wrk.headers["Accept-Encoding"] = encoding end
  local requests, turn = {}, 0
  -- The requests are written once: the load shares a core with others.
  init = function()
    for number = 0, paths - 1 do
      requests[number] = wrk.format("GET", os.getenv("BENCH_PATH"):format(number))
    end
  end
  request = function()
    turn = (turn + 1) % paths
    return requests[turn]
  end
end

done = function(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  local line = '{"requests":%d,"errors":%d,"seconds":%f,"mean":%f,"stdev":%f,"p50":%f,"p90":%f,"p99":%f,"p999":%f,"max":%f}\n'
  io.write(line:format(summary.requests, failed, summary.duration / 1e6, latency.mean, latency.stdev,
    latency:percentile(50), latency:percentile(90), latency:percentile(99), latency:percentile(99.9), latency.max))
end
