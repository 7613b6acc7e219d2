package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"
)

// Bounds of one load run: it stops by itself whatever it is asked for.
const (
	maxConnections = 10_000
	maxRequests    = 2_000_000
	maxDuration    = 120 * time.Second
)

// plan is one load run.
type plan struct {
	addr        string // of the gateway, a loopback address
	key         string // bearer key, "" for none
	model       string
	body        string // bodySmall, bodyTools or bodyBig
	stream      bool   // the client asks for a stream
	assembled   bool   // the gateway builds a plain answer from a stream
	connections int
	once        bool          // one request per connection instead of a closed loop
	ramp        time.Duration // the connections start spread over this time
	warm        time.Duration // not measured, before duration
	duration    time.Duration // measured time of a closed loop
	requests    int           // end of a closed loop by count; 0 means by duration
	pid         int           // process whose cost is measured; 0 means none
	mockPID     int           // the upstream, so that it is not counted as disturbance
}

func (p *plan) flags(fs *flag.FlagSet) {
	fs.StringVar(&p.addr, "addr", "127.0.0.1:9010", "loopback address of the gateway")
	fs.StringVar(&p.key, "key", "", "bearer key")
	fs.StringVar(&p.model, "model", modelPlain, `model name; "bench-NxP" streams N chunks P apart`)
	fs.StringVar(&p.body, "body", bodySmall, "small, tools or big")
	fs.BoolVar(&p.stream, "stream", false, "ask for a stream")
	fs.BoolVar(&p.assembled, "assembled", false, "expect a plain answer built from a stream")
	fs.IntVar(&p.connections, "connections", 1, "connections")
	fs.BoolVar(&p.once, "once", false, "one request per connection, then end")
	fs.DurationVar(&p.ramp, "ramp", 0, "spread the start of the connections over this time")
	fs.DurationVar(&p.warm, "warm", 500*time.Millisecond, "warm-up, not measured")
	fs.DurationVar(&p.duration, "duration", 2*time.Second, "measured time")
	fs.IntVar(&p.requests, "requests", 0, "end after this many requests instead of after -duration")
	fs.IntVar(&p.pid, "pid", 0, "process to measure")
	fs.IntVar(&p.mockPID, "mock-pid", 0, "process of the upstream")
}

// args is the command line that gives p back.
func (p *plan) args() []string {
	fs := flag.NewFlagSet("load", flag.ContinueOnError)
	var copied plan
	copied.flags(fs)
	copied = *p
	var out []string
	fs.VisitAll(func(f *flag.Flag) {
		if v := f.Value.String(); v != f.DefValue {
			out = append(out, "-"+f.Name+"="+v)
		}
	})
	return out
}

func (p *plan) validate() error {
	var faults []error
	if err := onLoopback(p.addr); err != nil {
		faults = append(faults, err)
	}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(p.connections >= 1 && p.connections <= maxConnections, "connections must be 1 to %d", maxConnections)
	check(p.requests >= 0 && p.requests <= maxRequests, "requests must be 0 to %d", maxRequests)
	for name, d := range map[string]time.Duration{"ramp": p.ramp, "warm": p.warm, "duration": p.duration} {
		check(d >= 0 && d <= maxDuration, "%s must be 0 to %v", name, maxDuration)
	}
	check(!p.stream || !p.assembled, "stream and assembled exclude each other")
	check(!strings.ContainsAny(p.key, "\r\n"), "the key must be one line")
	return errors.Join(faults...)
}

// limit is how long the whole run may take.
func (p *plan) limit() time.Duration {
	s := parseModel(p.model)
	answer := 30*time.Second + 3*time.Duration(s.chunks)*s.pause
	if p.requests > 0 {
		return p.ramp + p.warm + maxDuration + answer
	}
	return p.ramp + p.warm + p.duration + extend + answer
}

// request renders the bytes each connection sends.
func (p *plan) request() ([]byte, error) {
	body, err := requestBody(p.body, p.model, p.stream)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: */*\r\n"+
		"User-Agent: weir-bench\r\nContent-Length: %d\r\n", p.addr, len(body))
	if p.key != "" {
		head += "Authorization: Bearer " + p.key + "\r\n"
	}
	return append([]byte(head+"\r\n"), body...), nil
}
