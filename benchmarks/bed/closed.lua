-- Closed loop: every connection sends the next request as soon as the last one is answered. At the end a line of JSON:
-- requests, seconds, errors of each kind, and the latencies' quantiles in seconds.

wrk.method = "POST"
wrk.path = "/v1/chat/completions"
wrk.headers["content-type"] = "application/json"
wrk.body = '{"model": "small", "messages": [{"role": "user", "content": "?"}]}'

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      '\n{"requests": %d, "seconds": %f, "connect": %d, "read": %d, "write": %d, "status": %d, "timeout": %d, ' ..
      '"mean": %f, "median": %f, "p99": %f}\n',
      summary.requests, summary.duration / 1e6, errors.connect, errors.read, errors.write, errors.status, errors.timeout,
      latency.mean / 1e6, latency:percentile(50) / 1e6, latency:percentile(99) / 1e6
   ))
end
